//! Makes sure that one process at a time works with a store (D9), by a lock on the store's own file.
//!
//! The lock is the kernel's (`flock`). It ends with its process, however the process ends. A paused process keeps it.
//! A lease would end while its owner sleeps, and then there would be two owners. The rules:
//!
//! - **The locked file is the store itself.** A lock file beside it could be removed, and then a second process would
//!   lock a new one. After taking the lock, the process checks that the locked file is still the file at the path
//!   (device and inode). If the file was renamed or removed meanwhile, the lock is taken again.
//! - **The locked file is closed last.** On a local file system of Linux, `flock` and the POSIX locks of SQLite do
//!   not affect each other. But if a process closes any descriptor of a file, it loses all its POSIX locks on the
//!   file (see `base/open_stores.rs`). For this reason the descriptor is opened before SQLite opens the file, and
//!   closed after SQLite closed it. Each value with a connection keeps an `Arc<Ownership>` in a field *after* the
//!   connection, because Rust drops fields in order.
//! - **An attempt does not wait in the kernel.** It opens the file, tries the lock, and closes the file, while no
//!   other thread of the process does the same (`open_stores::alone`). A waiting descriptor could be closed later,
//!   while another thread has the store open. The attempt is repeated every 20 ms. The waiting process notices a
//!   stop, and a standby takes over within 20 ms.
//! - **A forked child does not own the store.** But its copy of the descriptor would keep the lock after the parent
//!   ended. The bindings call [`Ownership::forget_in_child`] in the child. If a parent gives up the store, it unlocks
//!   all copies. A program that the process starts inherits nothing (`O_CLOEXEC`).
//! - **On systems other than Linux, `STORE.lock` is the lock**, and must not be removed. There, `flock` and POSIX locks
//!   exclude each other, even within one process.
//!
//! The owner's process id is only shown to people. On Linux it comes from `/proc/locks`, on other systems from
//! `STORE.lock`.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_utils::sync::Parker;

use super::locked_file::{Locked, beside, open_or_make, options, refuse_log_alone, try_flock, unusable};
use super::network::refuse_network;
use super::one_name::{refuse_second_name, refuse_side_name, remove_unfinished};
use crate::base::error::DeliveryError;
use crate::base::open_stores::{self, FileId, alone};

const TRY_EVERY: Duration = Duration::from_millis(20);
const MOST_LINKS: usize = 40;
/// How many times the list of locks is read if it must have a lock but does not.
const LOOKS: usize = 10;
/// Whether the lock on the store's own file works on this system.
pub(in crate::store) const LOCKS_ITSELF: bool = cfg!(target_os = "linux");

/// A store that no other process, and no other code in this process, works with. The lock lasts until this is dropped
/// or the process ends.
#[derive(Debug)]
pub struct Ownership {
    path: PathBuf,
    store: Locked,
    side: Option<Locked>,
}

enum Attempt {
    Taken(Ownership),
    /// Another process, or this one, has the store.
    InUse(String),
    /// The file at the path has changed.
    Moved,
}

impl Ownership {
    /// Waits until only this process has the store. Makes the file if there is none. If another process has the
    /// store, `waiting` is called once with a text; from then on `go_on` is called every 20 ms.
    ///
    /// # Errors
    /// - [`DeliveryError::Usage`]: the path can't be a store, or is on a network file system.
    /// - [`DeliveryError::Store`]: the file can't be made or locked.
    /// - [`DeliveryError::Closed`]: `go_on` returned `false`.
    pub fn take(
        path: &Path,
        waiting: &mut dyn FnMut(&str),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self, DeliveryError> {
        let mut is_told = false;
        Self::take_unless(path, &mut |owner| {
            if !is_told {
                waiting(&format!("{owner}: waiting for it to end"));
                is_told = true;
            }
            if go_on() { Ok(()) } else { Err(DeliveryError::Closed) }
        })
    }

    /// Takes the store if nothing has it.
    ///
    /// # Errors
    /// The same as [`Ownership::take`]. Also [`DeliveryError::Usage`] if another process, or this one, has the store.
    pub(crate) fn try_take(path: &Path) -> Result<Self, DeliveryError> {
        let held = |owner: &str| DeliveryError::Usage(format!("{owner}: close it there first, or name another store"));
        Self::take_unless(path, &mut |owner| Err(held(owner)))
    }

    /// Takes the store. Calls `is_held` every 20 ms while the store is held.
    fn take_unless(
        path: &Path,
        is_held: &mut dyn FnMut(&str) -> Result<(), DeliveryError>,
    ) -> Result<Self, DeliveryError> {
        fill_standard_descriptors();
        let path = resolved(path)?;
        let pause = Parker::new();
        loop {
            match attempt(&path, || {})? {
                Attempt::Taken(ownership) => return Ok(ownership),
                Attempt::InUse(owner) => {
                    is_held(&owner)?;
                    pause.park_timeout(TRY_EVERY);
                }
                Attempt::Moved => {}
            }
        }
    }

    /// The store's file, without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// If the store's file was made for this owner, it is removed at the end unless `is_used` has become true.
    pub fn remove_unless(&mut self, is_used: Arc<AtomicBool>) {
        self.store.remove_unless(is_used);
    }

    /// Call this in a child that was forked while this process had the store. It closes the child's copy of the
    /// descriptor, so the store is free when the parent ends. In the parent it does nothing. It takes no lock that
    /// could be held at the fork.
    pub(crate) fn forget_in_child(&self) {
        self.store.forget_in_child();
        if let Some(side) = &self.side {
            side.forget_in_child();
        }
    }
}

/// One attempt. `when_open` runs between opening and locking; a test replaces the file at this point.
fn attempt(path: &Path, when_open: impl FnOnce()) -> Result<Attempt, DeliveryError> {
    let mut locked = None; // is dropped outside of `alone`
    alone(|| {
        if FileId::at(path).is_some_and(open_stores::has) {
            return Ok(Attempt::InUse(format!("this process works with {} already", path.display())));
        }
        refuse_side_name(path)?;
        refuse_log_alone(path)?;
        let (file, is_made) = open_or_make(path).map_err(|error| unusable(path, &error))?;
        let id = FileId::of(&file.metadata().map_err(|error| unusable(path, &error))?);
        if open_stores::has(id) {
            // The path was renamed between the two checks, and now leads to a file that is open here. Closing it
            // would drop SQLite's locks.
            std::mem::forget(file);
            return Ok(Attempt::Moved);
        }
        when_open();
        if LOCKS_ITSELF && !try_flock(path, &file)? {
            return Ok(Attempt::InUse(held_by(path, process_that_locked(id))));
        }
        if FileId::at(path) != Some(id) {
            return Ok(Attempt::Moved);
        }
        locked = Some(Locked::new(path, file, is_made)?);
        remove_unfinished(path);
        refuse_second_name(path)?;
        let side = if LOCKS_ITSELF {
            None
        } else {
            match lock_side(path)? {
                Side::Locked(side) => Some(side),
                Side::InUse(pid) => return Ok(Attempt::InUse(held_by(path, pid))),
            }
        };
        let store = locked.take().expect("it was locked above");
        Ok(Attempt::Taken(Ownership { path: path.to_owned(), store, side }))
    })
}

enum Side {
    Locked(Locked),
    /// Another process has the lock. The number is its process id, if the file has one.
    InUse(Option<u32>),
}

/// Locks `STORE.lock`, which is made if it is missing.
fn lock_side(store: &Path) -> Result<Side, DeliveryError> {
    let path = beside(store, ".lock");
    let file = options().create(true).open(&path).map_err(|error| unusable(&path, &error))?;
    if !try_flock(&path, &file)? {
        let mut text = String::new();
        let _ = (&file).take(20).read_to_string(&mut text);
        return Ok(Side::InUse(text.trim().parse().ok()));
    }
    // The number is only shown to people, so a full disk does not matter.
    let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{}\n", process::id()).as_bytes(), 0));
    Locked::new(&path, file, false).map(Side::Locked)
}

fn held_by(path: &Path, pid: Option<u32>) -> String {
    let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    format!("another process works with {}{pid}", path.display())
}

/// The process that locked the file; `None` unless exactly one lock is found. The system returns the list in parts of
/// a page, about 60 locks each. If locks come and go between two parts, a lock may be missing, so the list is read
/// again.
fn process_that_locked(file: FileId) -> Option<u32> {
    for _ in 0..LOOKS {
        match processes_that_locked(file)?[..] {
            [] => {}
            [owner] => return Some(owner),
            _ => return None,
        }
    }
    None
}

/// Reads lines such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF`. If a process waits for a lock, its line
/// has an arrow behind the number. Some file systems show another device number in this list than in `stat`. If no
/// lock has the file's own device number, only the inode counts.
fn processes_that_locked(file: FileId) -> Option<Vec<u32>> {
    Some(owners_in(&fs::read_to_string("/proc/locks").ok()?, "FLOCK", file))
}

/// Another process that has SQLite's lock for writing, such as a person's `sqlite3` in a transaction. SQLite takes it on the
/// file beside the store. `None` if none is found.
pub(crate) fn process_that_writes(store: &Path) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    owners_in(&locks, "POSIX", FileId::at(&beside(store, "-shm"))?).into_iter().find(|pid| *pid != process::id())
}

/// The owners in the list, each once. A list read in parts may show the same lock twice.
fn owners_in(locks: &str, kind: &str, file: FileId) -> Vec<u32> {
    let owners = locks.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_taken = fields.next()? == kind && fields.nth(1)? == "WRITE";
        let pid: u32 = fields.next()?.parse().ok()?;
        let mut numbers = fields.next()?.split(':');
        let mut of_device = || u64::from_str_radix(numbers.next()?, 16).ok();
        let device = (of_device()?, of_device()?);
        let inode: u64 = numbers.next()?.parse().ok()?;
        (is_taken && inode == file.inode).then_some((device == file.device_numbers(), pid))
    });
    let owners: Vec<(bool, u32)> = owners.collect();
    let has_own = owners.iter().any(|(is_own, _)| *is_own);
    let mut pids: Vec<_> = owners.into_iter().filter(|(is_own, _)| *is_own || !has_own).map(|(_, pid)| pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// The processes that work with the store. There is at most one, but a file with the same number in another file
/// system may add more. The search takes no lock, so it never delays a process that starts. In another container it
/// works only if the containers share their process ids.
#[must_use]
pub fn owners_of(path: &Path) -> Option<Vec<u32>> {
    processes_that_locked(FileId::at(path)?)
}

/// The path without symbolic links. It also works if there is no file yet.
fn resolved(path: &Path) -> Result<PathBuf, DeliveryError> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(DeliveryError::Usage("the path of the store has a NUL byte: name another file".to_owned()));
    }
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Some(name) = path.file_name().map(ToOwned::to_owned) else {
            return Err(DeliveryError::Usage(format!("{} is a folder: name a file for the store", path.display())));
        };
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let absolute = fs::canonicalize(folder).ok().filter(|folder| folder.is_dir()).ok_or_else(|| {
            DeliveryError::Usage(format!("there is no folder {}: make it, or name another store", folder.display()))
        })?;
        path = absolute.join(name);
        if let Ok(link) = fs::read_link(&path) {
            path = absolute.join(link);
            continue;
        }
        if path.is_dir() {
            return Err(DeliveryError::Usage(format!("{} is a folder: name a file for the store", path.display())));
        }
        if path.exists() && !path.is_file() {
            let text = format!("{} is a pipe or a device, which can't be a store: name a file", path.display());
            return Err(DeliveryError::Usage(text));
        }
        refuse_network(&absolute)?;
        return Ok(path);
    }
    Err(DeliveryError::Usage(format!("{} is a ring of symbolic links: name a file for the store", path.display())))
}

/// Opens closed standard streams on `/dev/null`. Otherwise the next opened file would get the number of the stream,
/// and output of the program would go into the store.
fn fill_standard_descriptors() {
    while let Ok(file) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        if file.as_raw_fd() > 2 {
            return;
        }
        let _ = file.into_raw_fd(); // it stays open
    }
}

#[cfg(test)]
mod tests;
