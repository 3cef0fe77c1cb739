//! Waiting with a bound.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

const WAIT_MAX: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// Asks again until `look` answers `Ok`; what its last `Err` said stands in the panic.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(last) if start.elapsed() >= WAIT_MAX => panic!("waited for {what}; last: {last}"),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Opens a FIFO to write when a program has opened it to read. A usual open would wait forever if none does.
#[track_caller]
pub(crate) fn open_read_fifo(path: &Path) -> File {
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let open = || File::options().write(true).custom_flags(at_once).open(path).map_err(|e| e.to_string());
    wait_for("a program to read the FIFO", open)
}
