//! The time that was spent on attempts.

use std::time::Duration;

use tokio::time::Instant;

use metes_core::limits;

/// Counts the time of attempts. A process may be stopped for seconds and go on. Then the attempt that it was stopped in
/// has not shown that etcd is slow, so it counts only for as long as an attempt may take.
#[derive(Debug)]
pub struct Tried {
    since: Instant,
    spent: Duration,
}

impl Tried {
    /// Begins.
    #[must_use]
    pub fn new() -> Self {
        Self { since: Instant::now(), spent: Duration::ZERO }
    }

    /// The time until now. It is called after each attempt.
    pub(crate) fn spent(&mut self) -> Duration {
        let now = Instant::now();
        self.spent += (now - self.since).min(limits::CONNECT_ATTEMPT_ALONE + limits::REQUEST_ATTEMPT);
        self.since = now;
        self.spent
    }

    /// True if there may be another attempt after a pause: it was tried for less than `most`, and it is not `until`
    /// yet.
    pub fn may_go_on(&mut self, most: Duration, until: Instant) -> bool {
        self.spent() < most && Instant::now() + limits::RETRY_PAUSE < until
    }
}

impl Default for Tried {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_sleep_counts_as_one_attempt() {
        let mut tried = Tried::new();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(tried.spent(), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(13)).await;
        assert_eq!(tried.spent(), Duration::from_secs(4));
    }
}
