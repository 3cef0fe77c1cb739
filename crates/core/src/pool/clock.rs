//! The clock by which the starts of one node's runs are compared.

use std::cell::RefCell;
use std::fmt;

use super::RunStart;

/// The present boot-time clock of the node that a run is on, in the form of a start.
///
/// It is read *after* the answer whose starts are judged. So no run of this boot that the answer shows has begun later
/// than the clock says, except for one from before the clock went back: the host is a virtual machine that was put back
/// to a snapshot of its memory, and boot id and clock went back with it. The run's own start would not do: a run that
/// has taken long would mistake a younger one for such a run.
///
/// While a run takes long, the clock may catch up with a start that it had not reached. So a run has one clock, which
/// remembers such starts, each with the revision at which it was put. What is put again later is judged anew: by then,
/// the clock of the run that put it may have caught up.
pub struct Clock<'a> {
    read: &'a dyn Fn() -> RunStart,
    /// The starts of this boot that the clock had not reached when they were judged, and the revisions at which they
    /// were put.
    not_reached: RefCell<Vec<(RunStart, i64)>>,
}

impl<'a> Clock<'a> {
    /// The clock that this function reads.
    #[must_use]
    pub fn new(read: &'a dyn Fn() -> RunStart) -> Self {
        Self { read, not_reached: RefCell::default() }
    }

    /// True if this start, which was read before, is not of the present boot, or is from before the clock went back. It
    /// was put at this revision; 0: it is in no store.
    pub(crate) fn is_of_another_boot(&self, start: &RunStart, put_at: i64) -> bool {
        let now = (self.read)();
        if self.not_reached.borrow().iter().any(|(other, at)| other == start && *at == put_at) {
            return true;
        }
        if start.is_of_another_boot(&now) && start.boot == now.boot {
            self.not_reached.borrow_mut().push((start.clone(), put_at));
        }
        start.is_of_another_boot(&now)
    }
}

impl fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", (self.read)())
    }
}

impl RunStart {
    /// True if something started at `other` (nothing: no start known) is older than this run, by the clock of the node;
    /// none where nobody has that clock. With `other` is the revision at which it was put.
    ///
    /// Older means: no start; of another boot, or from before the clock went back, and this run is not; or an earlier
    /// moment.
    #[must_use]
    pub fn is_after(&self, other: Option<(&RunStart, i64)>, clock: Option<&Clock<'_>>) -> bool {
        let Some((other, put_at)) = other else { return true };
        let is_past = |start: &RunStart, at| clock.is_some_and(|clock| clock.is_of_another_boot(start, at));
        match (is_past(self, 0), is_past(other, put_at)) {
            (false, true) => true,
            (true, false) => false,
            _ => other.boot != self.boot || other.ns < self.ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn older_is_no_start_another_boot_or_an_earlier_moment() {
        let start = |boot: &str, ns| RunStart { boot: boot.into(), ns };
        let run = start("b1", 10);
        let now = Cell::new(12);
        let read = || start("b1", now.get());
        let clock = Clock::new(&read);
        for (other, is_older_here, is_older_elsewhere) in [
            (None, true, true),
            (Some(start("b0", 99)), true, true),
            (Some(start("b1", 9)), true, true),
            (Some(run.clone()), false, false),
            (Some(start("b1", 11)), false, false),
            (Some(start("b1", 12)), false, false),
            // Only the node's own clock shows that it is from before the clock went back.
            (Some(start("b1", 13)), true, false),
        ] {
            let other = other.as_ref().map(|other| (other, 1));
            assert_eq!(run.is_after(other, Some(&clock)), is_older_here, "{other:?}");
            assert_eq!(run.is_after(other, None), is_older_elsewhere, "{other:?}");
        }
        for before in [start("b0", 5), start("b1", 14)] {
            assert!(!before.is_after(Some((&run, 1)), Some(&clock)), "{before:?}");
            assert!(before.is_after(Some((&start("b2", 5), 1)), Some(&clock)), "{before:?}");
        }
        assert!(start("b1", 14).is_after(Some((&start("b1", 13), 1)), Some(&clock)));
        // The run takes long, and the clock catches up.
        now.set(20);
        assert!(run.is_after(Some((&start("b1", 13), 1)), Some(&clock)));
        assert!(!run.is_after(Some((&start("b1", 15), 1)), Some(&clock)));
        // Another run, for which the clock had reached it, has put it again.
        assert!(!run.is_after(Some((&start("b1", 13), 2)), Some(&clock)));
    }
}
