//! Lists the store files that this process has open, so that no other code in the process opens the same file.
//!
//! SQLite's own locks are POSIX locks, which belong to the process. If the process closes *any* descriptor of a file,
//! it loses all its locks on the file. This happens even while a connection is in the middle of a transaction. A
//! single SQLite library handles this case: it keeps such descriptors open. A second library in the process (Python's
//! own), or a plain `open` and `close`, does not. For this reason, all code checks this list before it opens a store.
//!
//! - The list knows a file by its device and inode, because two paths, or a symbolic link, may lead to one file.
//! - The list has no lock that a forked child could inherit locked. It is a fixed number of slots, and each slot
//!   names the process that filled it. A child finds the slots of its parent free, because the child itself has no
//!   store open.
//! - `alone` runs a function while no other thread of this process is inside `alone`. The function looks, opens,
//!   locks, and fills a slot.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::Backoff;

/// The most store files that one process can have open at a time.
pub(crate) const MOST_OPEN: usize = 256;

static SLOTS: [Slot; MOST_OPEN] = [const { Slot::free() }; MOST_OPEN];

/// The id of the process that has a thread in [`alone`]; 0 if there is none. The exchange in `alone` (Acquire) pairs
/// with the store in `Leave` (Release), so each thread in `alone` sees the writes of the thread before.
static INSIDE: AtomicU32 = AtomicU32::new(0);

/// `note` writes `pid` last (Release) and `has` reads `pid` first (Acquire). A reader that sees the new `pid` also
/// sees `device` and `inode`.
struct Slot {
    pid: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Slot {
    const fn free() -> Self {
        Self { pid: AtomicU32::new(0), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    fn has(&self, file: FileId) -> bool {
        self.pid.load(Ordering::Acquire) == process::id()
            && self.device.load(Ordering::Relaxed) == file.device
            && self.inode.load(Ordering::Relaxed) == file.inode
    }
}

/// Identifies a file by device and inode, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// The major and minor number of the device.
    pub(crate) fn device_numbers(self) -> (u64, u64) {
        let device = self.device as rustix::fs::Dev; // narrower on macOS, where `dev` widens it
        (rustix::fs::major(device).into(), rustix::fs::minor(device).into())
    }

    /// The file at this path now; `None` if there is none.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::of)
    }
}

/// Whether the engine has this store open in this process. If so, ask the engine: code that opens the file itself
/// must refuse, or run in another process. Costs one `stat`.
#[must_use]
pub fn is_open_here(path: &Path) -> bool {
    FileId::at(path).is_some_and(has) || main_file(path).and_then(|path| FileId::at(&path)).is_some_and(has)
}

/// The ends of the names that SQLite gives to the files beside a store, and the end of its lock.
const SIDES: [&str; 4] = ["-wal", "-shm", "-journal", ".lock"];

/// The store of such a file.
pub(crate) fn main_file(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes();
    let base = SIDES.iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    (!base.is_empty()).then(|| path.with_file_name(OsStr::from_bytes(base)))
}

/// The error text if a caller wants to write to such a file.
#[must_use]
pub fn store_is_open(path: &Path) -> String {
    format!("{} is the store of a queue in this process: name another file", path.display())
}

pub(crate) fn has(file: FileId) -> bool {
    SLOTS.iter().any(|slot| slot.has(file))
}

/// An entry in the list, removed when the value is dropped. Close the file's descriptors before, inside the same
/// [`alone`]: otherwise a new file with the same inode counts as open.
#[derive(Debug)]
pub(crate) struct Opened {
    index: usize,
    pid: u32,
}

impl Opened {
    /// Adds the file to the list. Call it inside [`alone`]. `None`: all slots are filled.
    pub(crate) fn note(file: FileId) -> Option<Self> {
        let pid = process::id();
        let index = SLOTS.iter().position(|slot| slot.pid.load(Ordering::Acquire) != pid)?;
        let slot = &SLOTS[index];
        slot.device.store(file.device, Ordering::Relaxed);
        slot.inode.store(file.inode, Ordering::Relaxed);
        slot.pid.store(pid, Ordering::Release);
        Some(Self { index, pid })
    }

    /// Whether this process made the entry, and not the parent from which it was forked.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == process::id()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.is_ours() {
            SLOTS[self.index].pid.store(0, Ordering::Release);
        }
    }
}

/// Runs `work` while no other thread of this process is inside `alone`. Make only system calls that do not wait.
///
/// If a thread of the parent was inside at the fork, the child does not wait: the child's slots are its own.
pub(crate) fn alone<R>(work: impl FnOnce() -> R) -> R {
    let pid = process::id();
    let backoff = Backoff::new();
    loop {
        let inside = INSIDE.load(Ordering::Relaxed);
        if inside != pid && INSIDE.compare_exchange(inside, pid, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            break;
        }
        backoff.snooze();
    }
    let _leave = Leave;
    work()
}

/// Leaves `alone`, also after a panic.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        INSIDE.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn a_file_is_open_here_by_every_path_until_it_is_given_up__d9() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link, hard) =
            (folder.path().join("store.db"), folder.path().join("link.db"), folder.path().join("hard.db"));
        fs::write(&path, b"").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        fs::hard_link(&path, &hard).unwrap();
        let other = folder.path().join("other.db");
        fs::write(&other, b"").unwrap();
        assert!(!is_open_here(&path));
        let opened = alone(|| Opened::note(FileId::at(&path).unwrap())).unwrap();
        assert!([&path, &link, &hard].into_iter().all(|path| is_open_here(path)));
        assert!(!is_open_here(&other) && !is_open_here(&folder.path().join("nothing")));
        drop(opened);
        assert!(!is_open_here(&path));
    }

    #[test]
    fn one_thread_at_a_time_is_alone_also_after_a_panic() {
        static IS_TAKEN: AtomicBool = AtomicBool::new(false);
        let _ = std::panic::catch_unwind(|| alone(|| panic!("on purpose")));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        alone(|| {
                            assert!(!IS_TAKEN.swap(true, Ordering::SeqCst));
                            thread::yield_now();
                            IS_TAKEN.store(false, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
    }

    #[test]
    fn what_a_parent_had_open_is_not_open_in_the_child() {
        let file = FileId { device: u64::MAX, inode: u64::MAX };
        let opened = alone(|| Opened::note(file)).unwrap();
        assert!(has(file));
        let parent = process::id() + 1; // simulates a fork from that process
        SLOTS[opened.index].pid.store(parent, Ordering::Release);
        assert!(!has(file));
        let inherited = Opened { index: opened.index, pid: parent };
        assert!(!inherited.is_ours());
        drop(inherited);
        assert_eq!(SLOTS[opened.index].pid.load(Ordering::Acquire), parent);
        SLOTS[opened.index].pid.store(process::id(), Ordering::Release);
    }
}
