//! A database file while it is made, beside its later path. At that path it appears whole or not at all (D5, D20).
//!
//! Its name is the path with a suffix. It is locked, so a second process does not write it too. If a killed process
//! left a file with this name, the work begins anew. The file is removed if it does not get its path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::locked_file::{Locked, open_or_make, try_flock, unusable};
use super::owner::LOCKS_ITSELF;
use crate::base::error::{DeliveryError, StoreError};
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
            let (file, _) = open_or_make(&path).map_err(failed)?;
            let id = FileId::of(&file.metadata().map_err(failed)?);
            if (LOCKS_ITSELF && !try_flock(&path, &file)?) || FileId::at(&path) != Some(id) {
                return is_taken();
            }
            file.set_len(0).map_err(failed)?;
            Locked::new(&path, file, false)
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

    /// Moves the file to `target`, in place of any file there. The file stays locked as long as the returned value
    /// lives.
    pub(in crate::store) fn rename_to(mut self, target: &Path) -> Result<Option<Locked>, DeliveryError> {
        fs::rename(&self.path, target).map_err(|error| unusable(target, &error))?;
        Ok(self.locked.take())
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

/// Gives the store a second name: this suffix, with a number behind it if the name is taken. If the store has such a
/// name already, that name is returned.
pub(in crate::store) fn link_beside(store: &Path, suffix: &str) -> Result<PathBuf, DeliveryError> {
    let mut name = beside(store, suffix);
    for number in 2.. {
        match fs::hard_link(store, &name) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if FileId::at(&name) == FileId::at(store) {
                    break; // linked before the process was killed
                }
            }
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
    File::open(folder(file)).and_then(|folder| folder.sync_all()).map_err(|error| unusable(file, &error))
}

pub(in crate::store) fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

pub(in crate::store) fn beside(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
