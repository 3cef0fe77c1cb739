//! How slow an etcd has shown itself to be, and so how long a client waits for it.
//!
//! A member that is overloaded is slow in everything. If a request is given up too soon and sent anew, the member has
//! done its work for nothing, and has more to do. So an attempt has time by what its connection took. The next member
//! has no more after one without an answer: a request that is lost with a leader must be sent again soon. By the time
//! that the first one has its turn again, another leader would have been elected, so it has more.

use std::cell::Cell;
use std::time::Duration;

use metes_core::limits::{self, Patience};

/// What a client has seen.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// An endpoint has accepted a connection, and its handshake takes long.
    is_busy: Cell<bool>,
    /// The time that the last connection took to open.
    connected_in: Cell<Duration>,
}

impl Pace {
    /// An attempt to connect has ended, or was waited for in vain. `is_busy` says whether any endpoint has accepted a
    /// connection whose handshake is not over.
    pub(crate) fn note_busy(&self, is_busy: bool) {
        self.is_busy.set(is_busy);
    }

    pub(crate) fn connected(&self, took: Duration) {
        self.is_busy.set(false);
        self.connected_in.set(took);
    }

    /// The time that an attempt has which needs `least` where etcd is quick, and is to have `wanted`. Half of the time
    /// that is `left` stays for another member: what a commit came to may have to be found out there.
    pub(crate) fn attempt(&self, (least, wanted): (Duration, Duration), left: Duration) -> Duration {
        let by_connection = self.connected_in.get().saturating_mul(limits::REQUEST_IN_CONNECTS);
        by_connection.max(wanted).min(left / 2).max(least)
    }

    /// True if an endpoint has accepted a connection, and its handshake takes long.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.get()
    }

    /// The time to try while there is no connection.
    pub(crate) fn connecting_for(&self, patience: Patience) -> Duration {
        if self.is_busy() { patience.busy } else { patience.unreachable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(1500);
    const LEFT: Duration = Duration::from_secs(200);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_attempt_has_time_by_its_connection() {
        let pace = Pace::default();
        pace.connected(ms(15));
        assert_eq!(pace.attempt((LEAST, LEAST), LEFT), LEAST);
        assert_eq!(pace.attempt((LEAST, 2 * LEAST), LEFT), 2 * LEAST);
        pace.connected(ms(2000));
        assert_eq!(pace.attempt((LEAST, LEAST), LEFT), ms(8000));
    }

    #[test]
    fn an_attempt_leaves_half_of_the_time_unless_it_needs_it() {
        let pace = Pace::default();
        pace.connected(ms(4000));
        assert_eq!(pace.attempt((LEAST, LEAST), ms(10_000)), ms(5000));
        assert_eq!(pace.attempt((LEAST, 2 * LEAST), ms(1000)), LEAST);
    }

    #[test]
    fn a_busy_endpoint_is_tried_for_longer_until_a_connection_stands() {
        let (pace, patience) = (Pace::default(), Patience { unreachable: ms(1), busy: ms(2) });
        assert_eq!(pace.connecting_for(patience), ms(1));
        pace.note_busy(true);
        assert_eq!(pace.connecting_for(patience), ms(2));
        pace.connected(ms(1));
        assert_eq!(pace.connecting_for(patience), ms(1));
    }
}
