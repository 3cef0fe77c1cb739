//! Reading stdin for a bounded time: a caller that never closes it gets an error.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::files::read_bounded;

/// Reads stdin to its end, which must come before `until` and after at most `limit` bytes.
///
/// # Errors
/// [`io::Error`], [`io::ErrorKind::TimedOut`] if the end has not come, [`io::ErrorKind::FileTooLarge`] if there is
/// more.
pub fn read(limit: u64, until: Instant) -> io::Result<Vec<u8>> {
    read_until(io::stdin().as_fd(), limit, until)
}

fn read_until(source: BorrowedFd<'_>, limit: u64, until: Instant) -> io::Result<Vec<u8>> {
    read_bounded(Awaited { source, until }, limit)
}

/// A source that is read without a buffer, so that a poll sees all that has come.
struct Awaited<'a> {
    source: BorrowedFd<'a>,
    until: Instant,
}

impl Read for Awaited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match rustix::io::read(self.source, &mut *buffer) {
                // Another process has read what was there, and stdin does not block.
                Err(Errno::AGAIN | Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }
}

impl Awaited<'_> {
    fn wait(&self) -> io::Result<()> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            match poll(&mut [PollFd::from_borrowed_fd(self.source, PollFlags::IN)], Some(&timespec(left))) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn timespec(left: Duration) -> Timespec {
    Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(1)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn all_of_a_pipe_is_read() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let text = vec![b'x'; 300_000];
        let written = text.clone();
        let writing = thread::spawn(move || writer.write_all(&written));
        assert_eq!(read_until(reader.as_fd(), 1 << 20, late()).expect("read"), text);
        writing.join().expect("no panic").expect("written");
    }

    #[test]
    fn what_is_closed_is_read_though_no_time_is_left() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"{}").expect("written");
        drop(writer);
        assert_eq!(read_until(reader.as_fd(), 10, Instant::now()).expect("read"), b"{}");
    }

    #[test]
    fn an_end_that_does_not_come_is_not_awaited_for_ever() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let kind = |until| read_until(reader.as_fd(), 10, until).expect_err("no end").kind();
        assert_eq!(kind(soon()), io::ErrorKind::TimedOut);
        writer.write_all(b"{}").expect("written");
        assert_eq!(kind(soon()), io::ErrorKind::TimedOut);
        writer.write_all(b"more than there may be").expect("written");
        assert_eq!(kind(late()), io::ErrorKind::FileTooLarge);
    }
}
