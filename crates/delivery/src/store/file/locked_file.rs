//! A file that this process has locked and entered in the list of open stores (D9). See `owner.rs` for the rules.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::error::{DeliveryError, StoreError};
use crate::base::open_stores::{self, FileId, Opened, alone};
use crate::base::sync::Mutex;

/// A locked file. SQLite must close the file before this is dropped. Drop it outside of [`alone`].
#[derive(Debug)]
pub(in crate::store) struct Locked {
    /// `None` in a forked child that forgot the file. The child never finds the mutex locked: the parent locks it
    /// only while no other thread has this value.
    file: Mutex<Option<File>>,
    /// `None` while this is dropped.
    opened: Option<Opened>,
    /// The path, if this process made the file. The file is removed again if it is empty or unused.
    made: Option<PathBuf>,
    is_used: Option<Arc<AtomicBool>>,
}

impl Locked {
    pub(in crate::store) fn new(path: &Path, file: File, is_made: bool) -> Result<Self, DeliveryError> {
        let metadata = file.metadata().map_err(|error| unusable(path, &error))?;
        let opened = Opened::note(FileId::of(&metadata)).ok_or_else(|| {
            DeliveryError::Usage(format!(
                "this process has {} stores open, which is the most: close one first",
                open_stores::MOST_OPEN
            ))
        })?;
        let made = is_made.then(|| path.to_owned());
        Ok(Self { file: Mutex::new(Some(file)), opened: Some(opened), made, is_used: None })
    }

    /// Sets the condition for a file that this process made: it is removed again unless `is_used` becomes true.
    pub(in crate::store) fn remove_unless(&mut self, is_used: Arc<AtomicBool>) {
        self.is_used = Some(is_used);
    }

    /// A second descriptor, for `fsync`. Close it while SQLite has the file closed.
    pub(in crate::store) fn copy(&self) -> io::Result<File> {
        self.file.lock().as_ref().map_or_else(|| Err(io::ErrorKind::NotFound.into()), File::try_clone)
    }

    /// Whether this process has the lock, and not the parent from which it was forked.
    fn is_ours(&self) -> bool {
        self.opened.as_ref().is_some_and(Opened::is_ours)
    }

    fn remove_if_unused(&self, file: &File) {
        let is_unused = self.is_used.as_ref().is_some_and(|is_used| !is_used.load(Ordering::SeqCst));
        if let Some(path) = &self.made
            && let Ok(metadata) = file.metadata()
            && (metadata.len() == 0 || is_unused)
            && FileId::at(path) == Some(FileId::of(&metadata))
        {
            // The file is still locked, so nothing else uses it. If SQLite could not write any more, its log may
            // be left.
            for suffix in ["", "-wal", "-shm", "-journal"] {
                let _ = fs::remove_file(beside(path, suffix));
            }
        }
    }

    pub(in crate::store) fn forget_in_child(&self) {
        if !self.is_ours() {
            *self.file.lock() = None;
        }
    }
}

impl Drop for Locked {
    /// Closes the descriptor first. The file leaves the list afterwards. Between the two, a file that another thread makes
    /// could have the number of this one, if this one was removed, and would count as open.
    fn drop(&mut self) {
        let Some(file) = self.file.lock().take() else { return };
        if !self.is_ours() {
            return;
        }
        alone(|| {
            self.remove_if_unused(&file);
            // Unlocks the copies of forked children too. A child must not do this, because it is not the owner.
            let _ = flock(&file, FlockOperation::Unlock);
            drop(file);
            self.opened = None;
        });
    }
}

/// The path with this behind its name.
pub(in crate::store) fn beside(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A new file is for its owner alone, and no link is followed (D12). The caller has resolved the links of the user.
pub(in crate::store) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Refuses a path with a log but no file. The log may hold messages of a store that was moved away, and SQLite would
/// empty it beside a new file.
///
/// # Errors
/// There is no file, but a log of one.
pub(in crate::store) fn refuse_log_alone(path: &Path) -> Result<(), DeliveryError> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    for suffix in ["-wal", "-journal"] {
        let log = beside(path, suffix);
        if log.metadata().is_ok_and(|found| found.len() > 0) {
            return Err(DeliveryError::Usage(format!(
                "there is no {0}, but there is its log {1}, which may have messages: put {0} back beside it, or move the log to where \
                 the store is now",
                path.display(),
                log.display()
            )));
        }
    }
    Ok(())
}

pub(in crate::store) fn open_or_make(path: &Path) -> io::Result<(File, bool)> {
    loop {
        match options().open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return Ok((found?, false)),
        }
        match options().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // made by another process just now
            made => return Ok((made?, true)),
        }
    }
}

/// Tries to lock the file. `false`: another open file has the lock.
pub(in crate::store) fn try_flock(path: &Path, file: &File) -> Result<bool, DeliveryError> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(unusable(path, &error.into())),
        }
    }
}

pub(in crate::store) fn unusable(path: &Path, error: &io::Error) -> DeliveryError {
    let advice = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "make room on the disk and run again",
        Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => "its file system has no locks: use a local disk",
        Some(Errno::IO) => "check the disk, and run again",
        Some(Errno::LOOP) => "a symbolic link is in its place: remove the link",
        _ => "make it and its folder writable",
    };
    DeliveryError::Store(StoreError::new(path, error.to_string(), advice))
}
