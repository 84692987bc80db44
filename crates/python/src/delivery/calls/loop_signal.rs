//! `LoopSignal`: a descriptor that an event loop watches, and that any thread makes readable without the GIL.
//!
//! A thread of the engine reaches a loop without a Python thread state. So it never waits for the GIL while a callback
//! has the GIL.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

/// Readable from a `raise` until the next `clear`.
#[derive(Debug)]
pub(crate) struct LoopSignal {
    to_read: UnixStream,
    to_write: UnixStream,
}

impl LoopSignal {
    /// Errors: an error of the system, for example if the process has too many open files.
    pub(crate) fn new() -> io::Result<Self> {
        let (to_read, to_write) = UnixStream::pair()?;
        to_read.set_nonblocking(true)?;
        to_write.set_nonblocking(true)?;
        Ok(Self { to_read, to_write })
    }

    /// The descriptor that the loop watches.
    pub(crate) fn fd(&self) -> i32 {
        self.to_read.as_raw_fd()
    }

    /// Does not block: if the socket is full, it is readable already.
    pub(crate) fn raise(&self) {
        let _ = (&self.to_write).write(&[1]);
    }

    /// Must be called before the caller looks for new work.
    pub(crate) fn clear(&self) {
        let mut bytes = [0; 64];
        while (&self.to_read).read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
    }
}
