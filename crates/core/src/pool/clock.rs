//! The clock by which the starts of one node's runs are compared.

use std::fmt;

use super::RunStart;

/// The present boot-time clock of the node that a run is on, in the form of a start.
///
/// It is read *after* the answer whose starts are judged. So no run of this boot that the answer shows has begun later
/// than the clock says, except for one from before the clock went back: the host is a virtual machine that was put back
/// to a snapshot of its memory, and boot id and clock went back with it. The run's own start would not do: a run that
/// has taken long would mistake a younger one for such a run.
#[derive(Clone, Copy)]
pub struct Clock<'a>(&'a dyn Fn() -> RunStart);

impl<'a> Clock<'a> {
    /// The clock that this function reads.
    #[must_use]
    pub fn new(read: &'a dyn Fn() -> RunStart) -> Self {
        Self(read)
    }

    pub(crate) fn now(self) -> RunStart {
        (self.0)()
    }
}

impl fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.now())
    }
}
