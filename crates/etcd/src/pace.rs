//! How slow an etcd has shown itself to be, and so how long a client waits for it.
//!
//! A member that is overloaded is slow in everything. If a request is given up too soon and sent anew, the member has
//! done its work for nothing, and has more to do: a new connection costs it more than the request. So an attempt has
//! time by what its connection and the last answer took. At an endpoint that was silent itself, it has twice as long as
//! the attempt before it without an answer, at whichever endpoint that was: of thousands of runs that waited as long
//! each time, none would be answered any more.
//!
//! At an endpoint that was not silent since its last answer, the time stays short, because a request that is lost with
//! a leader must be sent again soon. The leader may be the last of three members that a run asks: the first two lose a
//! request each while they elect another leader.

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
    /// The time that the last request took which was answered.
    answered_in: Cell<Duration>,
    /// The attempts without an answer since the last that had one.
    unanswered: Cell<u32>,
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

    pub(crate) fn answered(&self, took: Duration) {
        self.answered_in.set(took);
        self.unanswered.set(0);
    }

    /// An attempt of a request was waited for in vain. Of requests beside each other on one connection, one counts.
    pub(crate) fn unanswered(&self) {
        self.unanswered.set(self.unanswered.get().saturating_add(1));
    }

    /// The time that an attempt has which needs `least` where etcd is quick. Half of the time that is `left` stays for
    /// another member: what a commit came to may have to be found out there. That others have not answered says nothing
    /// about an endpoint that was not silent itself.
    pub(crate) fn attempt(&self, least: Duration, left: Duration, was_silent: bool) -> Duration {
        let seen = self.connected_in.get().max(self.answered_in.get());
        let by_seen = seen.saturating_mul(limits::REQUEST_IN_ANSWERS);
        let doublings = if was_silent { self.unanswered.get() } else { 0 };
        let by_others = least.saturating_mul(2_u32.saturating_pow(doublings));
        by_seen.max(by_others).min(left / 2).max(least)
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
    fn an_attempt_has_time_by_its_connection_and_the_last_answer() {
        let pace = Pace::default();
        pace.connected(ms(15));
        assert_eq!(pace.attempt(LEAST, LEFT, true), LEAST);
        pace.connected(ms(2000));
        assert_eq!(pace.attempt(LEAST, LEFT, true), ms(8000));
        pace.answered(ms(3000));
        assert_eq!(pace.attempt(LEAST, LEFT, true), ms(12_000));
    }

    #[test]
    fn an_attempt_leaves_half_of_the_time_unless_it_needs_it() {
        let pace = Pace::default();
        pace.connected(ms(4000));
        assert_eq!(pace.attempt(LEAST, ms(10_000), true), ms(5000));
        assert_eq!(pace.attempt(LEAST, ms(1000), true), LEAST);
    }

    #[test]
    fn each_attempt_has_twice_the_time_of_one_without_an_answer() {
        let pace = Pace::default();
        for times in [1, 2, 4, 8] {
            assert_eq!(pace.attempt(LEAST, LEFT, true), times * LEAST);
            pace.unanswered();
        }
        pace.answered(ms(15));
        assert_eq!(pace.attempt(LEAST, LEFT, true), LEAST);
    }

    #[test]
    fn an_endpoint_that_was_not_silent_has_no_more_time_for_what_others_left_unanswered() {
        let pace = Pace::default();
        pace.unanswered();
        pace.unanswered();
        assert_eq!(pace.attempt(LEAST, LEFT, false), LEAST);
        pace.connected(ms(2000));
        assert_eq!(pace.attempt(LEAST, LEFT, false), ms(8000));
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
