//! A database file while it is made, beside its later path. At that path it appears whole or not at all (D5, D20).
//!
//! Its name is the path with a suffix. It is locked, so a second process does not write it too. A file with this name
//! that a killed process left is removed; a link, which another user may have put there, is refused (D12). The file is
//! removed if it does not get its path.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::locked_file::{Locked, beside, options, try_flock, unusable};
use super::owner::LOCKS_ITSELF;
use crate::base::error::{DeliveryError, StoreError};
use crate::base::folders;
use crate::base::open_stores::{self, FileId, alone};

/// The file, empty and locked at first. Use it while SQLite has it closed.
#[derive(Debug)]
pub(in crate::store) struct NewFile {
    pub(in crate::store) path: PathBuf,
    locked: Option<Locked>,
}

impl NewFile {
    /// Errors: `Usage` if another process writes the file; `Store` if the file can't be made.
    pub(in crate::store) fn begin(target: &Path, suffix: &str) -> Result<Self, DeliveryError> {
        let path = beside(target, suffix);
        let locked = alone(|| {
            let failed = |error: io::Error| unusable(&path, &error);
            let is_taken = || {
                let text = format!("{} is being written: let that end, and run again", path.display());
                Err(DeliveryError::Usage(text))
            };
            if FileId::at(&path).is_some_and(open_stores::has) {
                return is_taken();
            }
            let is_locked = |file: &File| -> Result<bool, DeliveryError> {
                let id = FileId::of(&file.metadata().map_err(failed)?);
                Ok((!LOCKS_ITSELF || try_flock(&path, file)?) && FileId::at(&path) == Some(id))
            };
            if let Ok(found) = path.symlink_metadata() {
                if !found.is_file() {
                    let text = format!("{} is in the way: remove it, and run again", path.display());
                    return Err(DeliveryError::Usage(text));
                }
                let left = options().open(&path).map_err(failed)?;
                if !is_locked(&left)? {
                    return is_taken();
                }
                fs::remove_file(&path).map_err(failed)?; // only the process with its lock may remove it
            }
            let file = match options().create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return is_taken(),
                made => made.map_err(failed)?,
            };
            if is_locked(&file)? { Locked::new(&path, file, false) } else { is_taken() }
        })?;
        let new = Self { path, locked: Some(locked) };
        new.remove_logs()?;
        Ok(new)
    }

    fn remove_logs(&self) -> Result<(), DeliveryError> {
        for suffix in ["-wal", "-shm", "-journal"] {
            let path = beside(&self.path, suffix);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&path, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives the file the same permissions as `other`.
    pub(in crate::store) fn permit_as(&self, other: &Path) -> Result<(), DeliveryError> {
        let permitted = fs::metadata(other).and_then(|found| fs::set_permissions(&self.path, found.permissions()));
        permitted.map_err(|error| unusable(&self.path, &error))
    }

    pub(in crate::store) fn sync(&self) -> Result<(), DeliveryError> {
        let synced = match &self.locked {
            Some(locked) => locked.copy().and_then(|file| file.sync_all()),
            None => Ok(()),
        };
        synced.map_err(|error| unusable(&self.path, &error))
    }

    /// Moves the file to `target`, in place of any file there.
    pub(in crate::store) fn rename_to(mut self, target: &Path) -> Result<(), DeliveryError> {
        fs::rename(&self.path, target).map_err(|error| unusable(target, &error))?;
        self.locked = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.locked.is_some() {
            let _ = fs::remove_file(&self.path); // if this fails, the next process begins anew
            let _ = self.remove_logs();
        }
    }
}

/// Gives the store a second name: this suffix, with a number behind it if the name is taken.
pub(in crate::store) fn link_beside(store: &Path, suffix: &str) -> Result<PathBuf, DeliveryError> {
    let mut name = beside(store, suffix);
    for number in 2.. {
        match fs::hard_link(store, &name) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let what = format!("its backup {} can't be linked: {error}", name.display());
                let advice = "use a file system with hard links, and make the folder writable: the store is as it was";
                return Err(StoreError::new(store, what, advice).into());
            }
        }
        name = beside(store, format!("{suffix}.{number}"));
    }
    Ok(name)
}

/// Writes the names in the folder of this file to the disk.
pub(in crate::store) fn sync_folder(file: &Path) -> Result<(), DeliveryError> {
    folders::sync_folder(file).map_err(|error| unusable(file, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_new_file_is_for_its_owner_alone_and_no_planted_link_is_followed__d12() {
        let folder = tempfile::tempdir().unwrap();
        let (target, part) = (folder.path().join("copy.db"), folder.path().join("copy.db.part"));
        let precious = folder.path().join("precious");
        for is_dangling in [true, false] {
            if !is_dangling {
                fs::write(&precious, "mine").unwrap();
            }
            symlink(&precious, &part).unwrap();
            let DeliveryError::Usage(text) = NewFile::begin(&target, ".part").unwrap_err() else { panic!() };
            assert_eq!(text, format!("{} is in the way: remove it, and run again", part.display()));
            fs::remove_file(&part).unwrap();
        }
        fs::hard_link(&precious, &part).unwrap(); // as if a killed process had left it
        let new = NewFile::begin(&target, ".part").unwrap();
        assert_eq!(fs::metadata(&part).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(NewFile::begin(&target, ".part"), Err(DeliveryError::Usage(_))), "it is being written");
        drop(new);
        assert_eq!((fs::read_to_string(&precious).unwrap(), part.exists()), ("mine".to_owned(), false));
    }
}
