//! The files of a step-up: the new one while it is made, the backup, and their folder.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::super::locked::{Locked, unusable};
use super::super::opened::FileId;
use super::super::owner::Ownership;
use crate::delivery::error::{DeliveryError, StoreError};

/// The new file before it is the store; removed again if it does not become that.
pub(super) struct Stepping {
    pub(super) path: PathBuf,
    locked: Option<Locked>,
}

impl Stepping {
    pub(super) fn begin(store: &Path) -> Result<Self, DeliveryError> {
        let path = beside(store, ".stepping");
        Self::remove(&path)?;
        let locked = Some(Ownership::lock_new(&path)?);
        Ok(Self { path, locked })
    }

    fn remove(path: &Path) -> Result<(), DeliveryError> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let path = beside(path, suffix);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&path, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), DeliveryError> {
        let synced = match &self.locked {
            Some(locked) => locked.copy().and_then(|file| file.sync_all()),
            None => Ok(()),
        };
        synced.map_err(|error| unusable(&self.path, &error))
    }

    pub(super) fn rename_to(mut self, store: &Path, ownership: &mut Ownership) -> Result<(), DeliveryError> {
        fs::rename(&self.path, store).map_err(|error| unusable(store, &error))?;
        if let Some(locked) = self.locked.take() {
            ownership.replace(locked);
        }
        Ok(())
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        if self.locked.is_some() {
            let _ = Self::remove(&self.path); // the next start removes it too
        }
    }
}

/// Gives the old file its second name.
pub(super) fn link_backup(store: &Path) -> Result<PathBuf, DeliveryError> {
    let mut backup = beside(store, ".version-1");
    for number in 2.. {
        match fs::hard_link(store, &backup) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if FileId::at(&backup) == FileId::at(store) {
                    break; // linked before the process was killed
                }
            }
            Err(error) => {
                let what = format!("its backup {} can't be linked: {error}", backup.display());
                let advice = "use a file system with hard links, and make the folder writable: the store is as it was";
                return Err(StoreError::new(store, what, advice).into());
            }
        }
        backup = beside(store, format!(".version-1.{number}"));
    }
    Ok(backup)
}

pub(super) fn sync_folder(store: &Path) -> Result<(), DeliveryError> {
    File::open(folder(store)).and_then(|folder| folder.sync_all()).map_err(|error| unusable(store, &error))
}

pub(super) fn folder(store: &Path) -> &Path {
    store.parent().unwrap_or(Path::new("/"))
}

pub(super) fn beside(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
