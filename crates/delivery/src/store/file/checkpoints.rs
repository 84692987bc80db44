//! Moves the write-ahead log to its place in the file while the writer goes on.
//!
//! A thread does the work four times a second while anything is written. It has its own connection, from the same
//! SQLite library, because two libraries in one process take each other's locks away. The thread cannot start the log
//! anew. If the log is long, the writer moves the rest after the thread, and the log starts anew.
//!
//! A failed checkpoint loses nothing, but the log grows. The failure is reported once, until a checkpoint succeeds
//! again. A failed sync is always reported, and ends the run: a later one may say yes to pages that are lost. The log
//! has them all. So it stays at the close, and the next opening moves it from its beginning.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::schema;
use crate::base::error::StoreError;
use crate::base::kill_point::kill_point;
use crate::base::sync::{Condvar, Mutex};
use crate::store::sql::{Broken, Result};
use crate::store::{Guard, Store};

/// Short, so that each checkpoint writes little. While the disk is busy with a checkpoint, the next group waits.
const EVERY: Duration = Duration::from_millis(250);
const LONG_LOG: i64 = 4_000; // pages

/// Called with the error of a checkpoint that failed, from the checkpoints' thread or the writer's.
pub(crate) type OnFailure = Box<dyn Fn(&StoreError) + Send + Sync>;

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "four facts that are true or not, each by itself")]
struct State {
    is_written: bool,
    is_long: bool,
    is_failing: bool,
    is_stopping: bool,
}

struct Shared {
    path: PathBuf,
    on_failure: OnFailure,
    /// Guards the state that the two threads share. It is not held during any call.
    state: Mutex<State>,
    changed: Condvar,
}

/// The checkpoint thread. If this is dropped, the thread finishes its present checkpoint and ends.
pub(crate) struct Checkpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Dropped after the thread has ended and closed its connection.
    _guard: Guard,
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl Checkpoints {
    /// Starts the thread for an open store.
    ///
    /// # Errors
    ///
    /// The thread can't be started.
    pub(crate) fn start(store: &Store, on_failure: OnFailure) -> std::result::Result<Self, StoreError> {
        Self::start_at(&store.path, store.guard.clone(), on_failure)
    }

    pub(crate) fn start_at(path: &Path, guard: Guard, on_failure: OnFailure) -> std::result::Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            on_failure,
            state: Mutex::new(State::default()),
            changed: Condvar::default(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new().name("checkpoints".to_owned()).spawn(move || of_thread.run()).map_err(|error| {
            StoreError::new(
                path,
                format!("no thread for its checkpoints: {error}"),
                "end other processes, and run again",
            )
        })?;
        Ok(Self { shared, thread: Some(thread), _guard: guard })
    }

    /// Whether the last one failed.
    pub(crate) fn are_failing(&self) -> bool {
        self.shared.state.lock().is_failing
    }

    /// Called by the writer after each commit with changes. Moves the rest of a long log.
    pub(crate) fn after_commit(&self, store: &Store) {
        let is_long = {
            let mut state = self.shared.state.lock();
            state.is_written = true;
            std::mem::take(&mut state.is_long)
        };
        self.shared.changed.notify_all();
        if is_long {
            self.shared.note(move_log(&store.db).map(|_| ()));
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it reported errors by `on_failure`
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut db = None;
        while self.wait() {
            let moved = match &db {
                Some(db) => move_log(db),
                None => schema::connect_again(&self.path)
                    .map_err(Broken::from)
                    .and_then(|opened| move_log(db.insert(opened))),
            };
            let pages = *moved.as_ref().unwrap_or(&0);
            self.note(moved.map(|_| ()));
            self.pause(pages);
        }
    }

    /// Waits until something is written. Returns whether to go on.
    fn wait(&self) -> bool {
        let is_idle = |state: &mut State| !state.is_written && !state.is_stopping;
        let mut state = self.changed.wait_while(self.state.lock(), None, is_idle);
        state.is_written = false;
        !state.is_stopping
    }

    fn pause(&self, pages: i64) {
        let mut state = self.state.lock();
        state.is_long = pages > LONG_LOG;
        drop(self.changed.wait_while(state, Some(Instant::now() + EVERY), |state| !state.is_stopping));
    }

    fn note(&self, done: Result<()>) {
        let was_failing = std::mem::replace(&mut self.state.lock().is_failing, done.is_err());
        let Err(error) = done.map_err(|broken| broken.of(&self.path)) else { return };
        if !was_failing || !error.passes() {
            (self.on_failure)(&error);
        }
    }
}

/// Moves as much of the log as possible. Returns the pages of the log.
fn move_log(db: &Connection) -> Result<i64> {
    kill_point("checkpoint");
    Ok(db.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |row| row.get(1))?)
}
