//! One process at a time works with a store (D9): an operating system's lock on the store's own file.
//!
//! The lock is the kernel's (`flock`) and ends with its process, however that ends; a paused process keeps it. A lease, by
//! contrast, ends while its owner sleeps, and then there are two. The rules:
//!
//! - **The locked file is the store itself.** A file beside it can be removed, and then a second process locks a new one.
//!   After the lock was taken, the locked file must still be the one at that path (device and inode); else it was renamed or
//!   removed meanwhile, and the lock is taken again.
//! - **It is closed last.** `flock` and the POSIX locks of SQLite do not meet on a local file system of Linux. But to close
//!   any descriptor of a file drops all POSIX locks of the process on it (see `base/open_stores.rs`). So the descriptor is opened
//!   before SQLite opens the file, and closed after SQLite closed it. For that, whatever has a connection keeps an
//!   `Arc<Ownership>` in a field *after* the connection, as fields are dropped in their order.
//! - **An attempt does not wait in the kernel.** It opens, tries the lock, and closes, while no other thread of the process
//!   does so (`open_stores::alone`). A descriptor that waited could be closed later, while another thread has the store open. The
//!   attempt is repeated every 20 ms. So a stop is noticed, and a standby takes over within 20 ms.
//! - **A forked child does not own the store**, but its copy of the descriptor would keep the lock after its parent ended. The
//!   bindings call [`Ownership::forget_in_child`] there. A parent that gives the store up unlocks it for all copies. A program
//!   that is started by the process inherits nothing (`O_CLOEXEC`).
//! - **`STORE.lock`** is what version 1 locked. Where it exists, it is locked too; the step-up from version 1 makes it first
//!   and removes it at its end (`upgrade/`). On systems other than Linux, `flock` and POSIX locks exclude each other, also
//!   within one process, so there `STORE.lock` is the lock, and must not be removed.
//!
//! The process id of the owner is only for people: on Linux from `/proc/locks`, else from `STORE.lock`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_utils::sync::Parker;

use super::locked::{Locked, open_or_make, options, refuse_log_alone, try_flock, unusable};
use super::network::refuse_network;
use crate::base::error::DeliveryError;
use crate::base::open_stores::{self, FileId, alone};

const TRY_EVERY: Duration = Duration::from_millis(20);
const MOST_LINKS: usize = 40;
/// How often the list of locks is read for one that must be in it.
const LOOKS: usize = 10;
/// Whether the lock on the store's own file is of use.
pub(in crate::store) const LOCKS_ITSELF: bool = cfg!(target_os = "linux");

/// A store that no other process, and nothing else in this one, works with. Held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct Ownership {
    path: PathBuf,
    store: Locked,
    side: Option<Locked>,
}

enum Attempt {
    Taken(Ownership),
    /// By another process, or by this one.
    Held(String),
    /// The file at the path is another one now.
    Moved,
}

impl Ownership {
    /// Waits until this process has the store alone, and makes its file if there is none. `waiting` is called once, with a text,
    /// if another process has it; from then on `go_on` is asked every 20 ms.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] where no store can be, or on a network file system; [`DeliveryError::Store`] if the file can't
    /// be made or locked; [`DeliveryError::Closed`] when `go_on` returns `false`.
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
    /// As [`Ownership::take`], and [`DeliveryError::Usage`] if another process, or this one, has it.
    pub(crate) fn try_take(path: &Path) -> Result<Self, DeliveryError> {
        let held = |owner: &str| DeliveryError::Usage(format!("{owner}: close it there first, or name another store"));
        Self::take_unless(path, &mut |owner| Err(held(owner)))
    }

    /// `is_held` is called every 20 ms while the store is held.
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
                Attempt::Held(owner) => {
                    is_held(&owner)?;
                    pause.park_timeout(TRY_EVERY);
                }
                Attempt::Moved => {}
            }
        }
    }

    /// The store's file, without symbolic links.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// If the store's file was made for this owner, it is removed again at the end unless `is_used` has become true.
    pub fn remove_unless(&mut self, is_used: Arc<AtomicBool>) {
        self.store.remove_unless(is_used);
    }

    /// To be called in a child that was forked while this process had the store: closes the child's copy of the descriptor, so
    /// that the store is free when the parent ends. Does nothing in the parent. Takes no lock that could be held at the fork.
    pub(crate) fn forget_in_child(&self) {
        self.store.forget_in_child();
        if let Some(side) = &self.side {
            side.forget_in_child();
        }
    }

    /// A second descriptor of the store's file. It is to be closed while SQLite does not have the file open.
    pub(in crate::store) fn file(&self) -> io::Result<File> {
        self.store.copy()
    }

    /// Locks what version 1 locked, for the step-up. `false`: a process of version 1 has it.
    pub(in crate::store) fn take_side(&mut self) -> Result<bool, DeliveryError> {
        if self.side.is_none() {
            self.side = match lock_side(&self.path, true)? {
                Side::Locked(side) => Some(side),
                Side::Absent | Side::Held(_) => return Ok(false),
            };
        }
        Ok(true)
    }

    /// Removes the file that version 1 locked. Its processes that wait for it find a newer store then, and end.
    pub(in crate::store) fn remove_side(&mut self) {
        if LOCKS_ITSELF && self.side.is_some() {
            let _ = fs::remove_file(side_path(&self.path)); // one that is left is locked again at the next start
            self.side = None;
        }
    }

    /// The new file is at the store's path now. The old one is unlocked; SQLite must have closed it.
    pub(in crate::store) fn replace(&mut self, new: Locked) {
        self.store = new;
    }
}

/// `when_open` runs between the opening and the lock: a test replaces the file there.
fn attempt(path: &Path, when_open: impl FnOnce()) -> Result<Attempt, DeliveryError> {
    alone(|| {
        if FileId::at(path).is_some_and(open_stores::has) {
            return Ok(Attempt::Held(format!("this process works with {} already", path.display())));
        }
        refuse_log_alone(path)?;
        let (file, is_made) = open_or_make(path).map_err(|error| unusable(path, &error))?;
        let id = FileId::of(&file.metadata().map_err(|error| unusable(path, &error))?);
        if open_stores::has(id) {
            // Renamed between the two looks to a file that is open here: closing it would drop SQLite's locks.
            std::mem::forget(file);
            return Ok(Attempt::Moved);
        }
        when_open();
        if LOCKS_ITSELF && !try_flock(path, &file)? {
            return Ok(Attempt::Held(held_by(path, process_that_locked(id))));
        }
        if FileId::at(path) != Some(id) {
            return Ok(Attempt::Moved);
        }
        let store = Locked::new(path, file, is_made)?;
        let side = match lock_side(path, !LOCKS_ITSELF)? {
            Side::Locked(side) => Some(side),
            Side::Absent => None,
            Side::Held(pid) => return Ok(Attempt::Held(held_by(path, pid))),
        };
        Ok(Attempt::Taken(Ownership { path: path.to_owned(), store, side }))
    })
}

enum Side {
    Locked(Locked),
    Absent,
    /// With the number in the file, if it is one.
    Held(Option<u32>),
}

fn side_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn lock_side(store: &Path, is_to_make: bool) -> Result<Side, DeliveryError> {
    let path = side_path(store);
    let file = match options().create(is_to_make).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Side::Absent),
        found => found.map_err(|error| unusable(&path, &error))?,
    };
    if !try_flock(&path, &file)? {
        let mut text = String::new();
        let _ = (&file).take(20).read_to_string(&mut text);
        return Ok(Side::Held(text.trim().parse().ok()));
    }
    // For people alone, so a full disk does not matter.
    let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{}\n", process::id()).as_bytes(), 0));
    Locked::new(&path, file, false).map(Side::Locked)
}

fn held_by(path: &Path, pid: Option<u32>) -> String {
    let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    format!("another process works with {}{pid}", path.display())
}

/// Of a file that is locked: where only one lock is found. The system gives the list in parts of a page, some 60 locks. When locks
/// come and go between two parts, one may be missing, and is looked for again.
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

/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF`. The lines of those that wait have an arrow behind the number. Some file systems
/// show another device number there than in `stat`: where no lock has the file's own, the inode decides.
fn processes_that_locked(file: FileId) -> Option<Vec<u32>> {
    Some(owners_in(&fs::read_to_string("/proc/locks").ok()?, file))
}

/// In a list that is read in parts the same lock may stand twice.
fn owners_in(locks: &str, file: FileId) -> Vec<u32> {
    let owners = locks.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_taken = fields.next()? == "FLOCK" && fields.nth(1)? == "WRITE";
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

/// The processes that work with the store: one at most, but for a file of the same number in another file system. They are found
/// without a lock, so that none that starts just now is held up; in other containers only where those share their process ids.
#[must_use]
pub fn owners_of(path: &Path) -> Option<Vec<u32>> {
    processes_that_locked(FileId::at(path)?)
}

/// Without symbolic links, also where there is no file yet.
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

/// Where a standard stream is closed, the next file that is opened gets its number, and whoever prints would write into the
/// store. So they are opened first, on nothing.
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
