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
/// remembers such starts.
pub struct Clock<'a> {
    read: &'a dyn Fn() -> RunStart,
    /// The starts of this boot that the clock had not reached when they were judged.
    not_reached: RefCell<Vec<RunStart>>,
}

impl<'a> Clock<'a> {
    /// The clock that this function reads.
    #[must_use]
    pub fn new(read: &'a dyn Fn() -> RunStart) -> Self {
        Self { read, not_reached: RefCell::default() }
    }

    /// True if this start, which was read before, is not of the present boot, or is from before the clock went back.
    pub(crate) fn is_of_another_boot(&self, start: &RunStart) -> bool {
        let now = (self.read)();
        if self.not_reached.borrow().contains(start) {
            return true;
        }
        if start.is_of_another_boot(&now) && start.boot == now.boot {
            self.not_reached.borrow_mut().push(start.clone());
        }
        start.is_of_another_boot(&now)
    }
}

impl fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", (self.read)())
    }
}
