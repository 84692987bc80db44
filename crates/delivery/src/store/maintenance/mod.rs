//! What an operator does with the file of a store (D20). None of it runs in the engine's threads.
//!
//! | | while the store delivers | |
//! |---|---|---|
//! | `check.rs` | yes: it reads one moment | is the file whole, and does it agree with itself? `messages.rs`, `names.rs`: the rules |
//! | `compact.rs` | no | gives every free page back to the disk |
//! | `backup.rs` | yes: it reads one moment | a copy in one file, which must be restored before it delivers |
//! | `pause.rs` | no: the deliverer is asked then | sending pauses, or goes on with the next deliverer |
//! | `restore.rs` | no | a store from such a copy, with new numbers for what it will accept |
//!
//! A long read keeps the deliverer's log from starting anew: it grows by what is written meanwhile, and is given back after.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod compact;
mod copying;
mod messages;
mod names;
pub(crate) mod pause;
mod problems;
pub(crate) mod restore;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, InterruptHandle, OpenFlags};

use crate::base::error::{DeliveryError, StoreError};
use crate::base::sync::Mutex;

/// By which another thread ends the work, at a statement or within one.
#[derive(Default)]
pub struct Stop {
    is_asked: AtomicBool,
    /// Held for no call of SQLite but the interrupt.
    running: Mutex<Option<InterruptHandle>>,
}

impl Stop {
    /// The work ends with [`DeliveryError::Closed`]. To be repeated until it has: a statement may begin right after.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
        if let Some(running) = &*self.running.lock() {
            running.interrupt();
        }
    }

    /// From now on the work is done by this connection.
    fn watch(&self, db: &Connection) -> Result<(), DeliveryError> {
        *self.running.lock() = Some(db.get_interrupt_handle());
        self.check()
    }

    fn check(&self) -> Result<(), DeliveryError> {
        if self.is_asked.load(Ordering::SeqCst) { Err(DeliveryError::Closed) } else { Ok(()) }
    }

    /// What the error of a statement means, where it may have been interrupted.
    fn or(&self, error: DeliveryError) -> DeliveryError {
        self.check().err().unwrap_or(error)
    }
}

fn open(path: &Path) -> Result<Connection, DeliveryError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| because(path, &error))
}

fn close(path: &Path, db: Connection) -> Result<(), DeliveryError> {
    db.close().map_err(|(_, error)| because(path, &error))
}

fn because(path: &Path, error: &rusqlite::Error) -> DeliveryError {
    StoreError::because(path, error).into()
}
