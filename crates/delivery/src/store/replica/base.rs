//! Copies of the file in the chain: a standby begins with the newest one, and older rows are deleted.
//!
//! A thread of the owner makes them, on a connection of its own, while groups go on. SQLite's log grows meanwhile by what is written
//! while the file is copied, not while the copy is sent.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use blake2b_simd::{Params, State};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::chain::Base;
use super::place::{Failed, at};
use super::{Chain, Lease, Link, Replicate, unusable};
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::error::{DeliveryError, StoreError};
use crate::base::sync::{Condvar, Mutex};
use crate::store::file::new_file::NewFile;
use crate::store::file::options::{Guard, Limits};
use crate::store::file::schema;
use crate::store::look::snapshot::Snapshot;
use crate::store::maintenance::Stop;
use crate::store::maintenance::backup::copy;
use crate::store::tables::meta;

/// The bytes of a row in PostgreSQL beside its body.
const ROW_BYTES: u64 = 100;
/// Pages copied between two looks.
const STEP: i32 = 2_000;
/// The suffix of the copy while it is sent or fetched.
const SUFFIX: &str = ".base";

impl From<DeliveryError> for Failed {
    fn from(error: DeliveryError) -> Self {
        Self::For(unusable(error.to_string()))
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::For(error.into())
    }
}

fn io(error: &std::io::Error) -> Failed {
    Failed::For(unusable(format!("the copy of the store beside it: {error}")))
}

fn hash() -> State {
    Params::new().hash_length(16).to_state()
}

fn digest_of(state: &State) -> [u8; 16] {
    state.finalize().as_bytes().try_into().expect("16 bytes")
}

/// Copies the file at the row that it has now into the chain.
///
/// # Errors
/// The file can't be copied, the chain did not answer, or it was asked to stop. A part of a base is ignored.
pub(super) fn make(
    path: &Path,
    chain: &mut dyn Chain,
    epoch: Option<i64>,
    piece_bytes: usize,
    stop: &Stop,
) -> Result<Base, Failed> {
    let source = Snapshot::open(path)?;
    let at = source.ask(at)?.ok_or_else(|| unusable("it has no chain".to_owned()))?;
    let made_ms = SystemWallTime.now_us() / 1_000;
    let epoch = epoch.unwrap_or(-made_ms); // nobody owns the store yet, and this may not be the first try
    let new = NewFile::begin(path, SUFFIX)?;
    copy(&new, source, stop, |_| Ok(()))?;
    let mut file = File::open(&new.path).map_err(|error| io(&error))?;
    let (mut state, mut pieces) = (hash(), 0);
    loop {
        stop.check()?;
        let mut piece = Vec::with_capacity(piece_bytes);
        (&mut file).take(piece_bytes as u64).read_to_end(&mut piece).map_err(|error| io(&error))?;
        if piece.is_empty() {
            break;
        }
        pieces += 1;
        state.update(&piece);
        chain.put_piece(at.n, epoch, pieces, &piece).map_err(Failed::Away)?;
    }
    let base = Base { at, epoch, pieces, digest: digest_of(&state), made_ms };
    chain.put_piece(at.n, epoch, 0, &base.last_piece()).map_err(Failed::Away)?;
    Ok(base)
}

/// Gives the file the content of a base, by one transaction of SQLite.
///
/// # Errors
/// The base can't be read, or is of another store; the opening is to end. The file is as it was.
pub(super) fn fetch(db: &mut Connection, chain: &mut dyn Chain, base: &Base, lease: &Lease) -> Result<(), Failed> {
    let path = PathBuf::from(db.path().unwrap_or_default());
    let new = NewFile::begin(&path, SUFFIX)?;
    let mut file = File::options().write(true).open(&new.path).map_err(|error| io(&error))?;
    let mut state = hash();
    for number in 1..=base.pieces {
        lease.look()?;
        let piece = chain.piece(base, number).map_err(Failed::Away)?;
        state.update(&piece);
        file.write_all(&piece).map_err(|error| io(&error))?;
    }
    drop(file);
    if digest_of(&state) != base.digest {
        return Err(unusable(format!("the base at row {} of the chain is damaged", base.at.n)).into());
    }
    let source =
        Connection::open_with_flags(&new.path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    if !schema::is_store(&source, &path, |error| StoreError::because(&new.path, &error).into())? {
        return Err(unusable("the base is no store".to_owned()).into());
    }
    let id = |db: &Connection| meta::get::<String>(db, "store_id");
    if at(db)?.is_some() && id(db)? != id(&source)? {
        return Err(unusable("the chain is of another store".to_owned()).into());
    }
    let copying = Backup::new(&source, db)?;
    while copying.step(STEP)? != StepResult::Done {
        lease.look()?;
    }
    Ok(())
}

/// How many bytes of rows there are since the newest base.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The last row that is counted.
    n: i64,
    bytes: u64,
}

impl Rows {
    /// Deletes what is before the newest base. Makes another one if the rows since then are larger than the file.
    ///
    /// # Errors
    /// As for [`make`].
    pub(super) fn look_after(
        &mut self,
        path: &Path,
        chain: &mut dyn Chain,
        lease: &Lease,
        limits: Limits,
        stop: &Stop,
    ) -> Result<(), Failed> {
        let base = chain.base().map_err(Failed::Away)?;
        lease.note_base(base.map(|it| it.made_ms));
        if let Some(base) = base {
            while chain.trim(&base).map_err(Failed::Away)? {
                stop.check()?;
            }
            if self.n < base.at.n {
                *self = Self { n: base.at.n, bytes: 0 };
            }
        }
        let (count, bytes) = chain.after(self.n).map_err(Failed::Away)?;
        self.n += count as i64;
        self.bytes += bytes + ROW_BYTES * count;
        let size = std::fs::metadata(path).map_or(0, |it| it.len());
        if self.bytes > if limits.base_bytes == 0 { 0 } else { size.max(limits.base_bytes) } {
            make(path, chain, Some(lease.epoch()), limits.base_piece, stop)?;
        }
        Ok(())
    }
}

/// The thread that makes bases. If this is dropped, it ends.
pub(crate) struct Bases {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Dropped after the thread has ended, and closed its connection.
    _guard: Guard,
}

impl std::fmt::Debug for Bases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bases").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

struct Shared {
    path: PathBuf,
    to: Replicate,
    lease: Arc<Lease>,
    limits: Limits,
    stop: Stop,
    is_stopping: Mutex<bool>,
    stopped: Condvar,
    failed: OnFailed,
}

/// Gets why no base was made, or old rows were not deleted. It is tried again.
type OnFailed = Box<dyn Fn(String) + Send + Sync>;

impl Bases {
    /// Starts the thread for an open store.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        path: &Path,
        to: &Replicate,
        lease: &Arc<Lease>,
        limits: Limits,
        guard: Guard,
        failed: OnFailed,
    ) -> Result<Self, DeliveryError> {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            to: to.clone(),
            lease: lease.clone(),
            limits,
            stop: Stop::default(),
            is_stopping: Mutex::default(),
            stopped: Condvar::default(),
            failed,
        });
        let of_thread = shared.clone();
        let thread = Builder::new().name("bases".to_owned()).spawn(move || of_thread.run());
        let thread = Some(thread.map_err(|error| DeliveryError::no_thread(&error))?);
        Ok(Self { shared, thread, _guard: guard })
    }
}

impl Drop for Bases {
    fn drop(&mut self) {
        *self.shared.is_stopping.lock() = true;
        self.shared.stop.ask();
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // at the latest when its question is answered, or has timed out
        }
    }
}

impl Shared {
    fn run(&self) {
        let (mut chain, mut rows, mut is_told) = (None, Rows::default(), false);
        let every = Duration::from_millis(self.limits.base_look_ms);
        loop {
            let end = std::time::Instant::now() + every;
            if *self.stopped.wait_while(self.is_stopping.lock(), Some(end), |is_stopping| !*is_stopping) {
                return;
            }
            if !self.lease.is_held() {
                continue;
            }
            match self.look(&mut chain, &mut rows) {
                Ok(()) => is_told = false,
                // Without the lease there is another error, which says more.
                Err(error) if !is_told && self.lease.is_held() && !*self.is_stopping.lock() => {
                    is_told = true; // once, until a look succeeds
                    (self.failed)(match error {
                        Failed::Away(reason) => reason,
                        Failed::For(broken) => broken.of(&self.path).to_string(),
                    });
                }
                Err(_) => {}
            }
        }
    }

    fn look(&self, chain: &mut Option<Box<dyn Chain>>, rows: &mut Rows) -> Result<(), Failed> {
        let chain = match chain {
            Some(chain) => chain,
            None => chain.insert(self.to.open().map_err(Failed::Away)?),
        };
        rows.look_after(&self.path, &mut **chain, &self.lease, self.limits, &self.stop)
    }
}

/// Whether the chain has lost no row of a file whose own row was deleted. Its owner is in the chain, and the next take-over comes
/// after the row.
pub(super) fn is_before(at: Link, owner: &str, chain: &mut dyn Chain) -> Result<bool, Failed> {
    let (epoch, name) = owner.split_once(' ').unwrap_or(("0", ""));
    let epoch: i64 = epoch.parse().unwrap_or(0);
    let taken = |it: Option<super::Row>| it.is_some_and(|it| it.body == name.as_bytes());
    let is_known = epoch == 0 || taken(chain.taken(epoch).map_err(Failed::Away)?);
    let next = chain.taken(epoch + 1).map_err(Failed::Away)?;
    Ok(is_known && next.is_none_or(|it| it.link.n > at.n))
}
