//! Refuses a store that has a second name: a hard link, or a mount of the file alone (D9). Refuses also a name that SQLite uses
//! for a file beside a store.
//!
//! SQLite names the log after the path. Under the second name the file is there and its log is not, so all messages
//! that are only in the log would be lost, as with `docker run -v ./store.db:/data/store.db`. Two processes would not
//! see each other's locks either.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::network::is_mount_point;
use crate::base::error::DeliveryError;
use crate::base::open_stores::{self, FileId};

/// The store that a restore replaced has this behind its name.
pub(in crate::store) const REPLACED: &str = ".replaced";

/// Removes the second names that a restore made, if it was killed before the new file got the path. Call this while the
/// file is locked.
pub(super) fn remove_unfinished(path: &Path) {
    for name in unfinished(path) {
        let _ = fs::remove_file(name); // if this fails, the store is refused
    }
}

/// Refuses a store with a second name. Names that [`remove_unfinished`] removes do not count.
///
/// # Errors
/// [`DeliveryError::Usage`].
pub(in crate::store) fn refuse_second_name(path: &Path) -> Result<(), DeliveryError> {
    let file = path.display();
    if is_mount_point(path) {
        return Err(DeliveryError::Usage(format!(
            "{file} is a mount of one file, and its log {file}-wal would be left behind: mount the folder of the store"
        )));
    }
    let links = fs::metadata(path).map_or(1, |found| found.nlink());
    if links > 1 && links > 1 + unfinished(path).len() as u64 {
        return Err(DeliveryError::Usage(format!(
            "{file} has {links} names (hard links), and its log {file}-wal is found under one of them only: remove the \
             other names, and run again"
        )));
    }
    Ok(())
}

fn unfinished(path: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(id)) = (path.file_name(), FileId::at(path)) else { return Vec::new() };
    let is_ours = |other: &Path| {
        let rest = other.file_name().and_then(|other| other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes()));
        let number = rest.and_then(|it| it.strip_prefix(REPLACED.as_bytes()));
        number.is_some_and(|it| it.iter().all(|byte| *byte == b'.' || byte.is_ascii_digit()))
    };
    let entries = fs::read_dir(path.parent().unwrap_or(path)).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|other| is_ours(other) && FileId::at(other) == Some(id)).collect()
}

/// Refuses a name that ends as that of a file beside a store, such as `NAME-wal`: SQLite would remove it beside a store `NAME`.
///
/// # Errors
/// [`DeliveryError::Usage`].
pub(in crate::store) fn refuse_side_name(path: &Path) -> Result<(), DeliveryError> {
    let Some(main) = open_stores::main_file(path) else { return Ok(()) };
    let (path, main) = (path.display(), main.display());
    Err(DeliveryError::Usage(format!("{path} is the name of a file that SQLite keeps for {main}: take another name")))
}

/// Whether the file has the head of a SQLite file. SQLite would remove the log of any other file.
pub(in crate::store) fn is_database(path: &Path) -> bool {
    let mut head = [0; 16];
    path.is_file() // not a pipe, which would wait for a writer
        && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && head == *b"SQLite format 3\0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_name_is_refused_unless_a_killed_restore_made_it__d9() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = at("store.db");
        fs::write(&path, "x").unwrap();
        for name in ["store.db.replaced", "store.db.replaced.2"] {
            fs::hard_link(&path, at(name)).unwrap();
        }
        refuse_second_name(&path).unwrap();
        for other in ["other.db", "store.db.replaced-once"] {
            fs::hard_link(&path, at(other)).unwrap();
            for name in ["store.db", other, "store.db.replaced"] {
                let text = refuse_second_name(&at(name)).unwrap_err().to_string();
                assert!(text.contains(" has 4 names (hard links), and its log "), "{text}");
            }
            fs::remove_file(at(other)).unwrap();
        }
        fs::write(at("store.db.replaced.3"), "another file").unwrap();
        remove_unfinished(&path);
        assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
        assert!(at("store.db.replaced.3").exists());
    }
}
