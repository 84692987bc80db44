//! The operator's tools for the file of a store (D20). They do not run in the engine's threads.
//!
//! | | while the store delivers | |
//! |---|---|---|
//! | `check.rs` | yes: it reads one moment | checks that the file is whole and its tables agree; rules in `messages.rs` and `names.rs` |
//! | `backup.rs` | to back up: it reads one moment | makes a copy in one file; makes a store from such a copy, with new numbers for new messages |
//! | `closed.rs` | no | gives every free page back to the disk; pauses sending, or resumes it for the next deliverer |
//!
//! During a long read the deliverer's log cannot start anew. It grows by the data written meanwhile, and shrinks
//! afterwards.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod closed;
mod messages;
mod names;
mod problems;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, InterruptHandle};

use crate::base::error::{DeliveryError, StoreError};
use crate::base::sync::Mutex;
use crate::store::file::schema;

/// Lets another thread end the work, between statements or within a statement.
#[derive(Default)]
pub struct Stop {
    is_asked: AtomicBool,
    /// No call of SQLite but the interrupt is made under this lock.
    running: Mutex<Option<InterruptHandle>>,
}

impl Stop {
    /// Ends the work with [`DeliveryError::Closed`]. Repeat the call until the work has ended, because a statement
    /// may begin right after it.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
        if let Some(running) = &*self.running.lock() {
            running.interrupt();
        }
    }

    /// Whether the work is to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }

    /// Notes the connection that does the work from now on.
    fn watch(&self, db: &Connection) -> Result<(), DeliveryError> {
        *self.running.lock() = Some(db.get_interrupt_handle());
        self.check()
    }

    pub(in crate::store) fn check(&self) -> Result<(), DeliveryError> {
        if self.is_asked.load(Ordering::SeqCst) { Err(DeliveryError::Closed) } else { Ok(()) }
    }

    /// The meaning of an error from a statement that may have been interrupted.
    fn or(&self, error: DeliveryError) -> DeliveryError {
        self.check().err().unwrap_or(error)
    }
}

fn open(path: &Path) -> Result<Connection, DeliveryError> {
    schema::connect_again(path).map_err(|error| because(path, &error))
}

fn close(path: &Path, db: Connection) -> Result<(), DeliveryError> {
    db.close().map_err(|(_, error)| because(path, &error))
}

fn because(path: &Path, error: &rusqlite::Error) -> DeliveryError {
    StoreError::because(path, error).into()
}
