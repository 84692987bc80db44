//! Makes a backup: a copy of one moment in one file (D20). The store may deliver meanwhile.
//!
//! The copy is marked as a backup (`file/is_backup.rs`), so it must be restored before it delivers.

use std::path::Path;

use super::Stop;
use super::check::Checked;
use super::copying::copy_into;
use crate::base::error::DeliveryError;
use crate::store::file::is_backup;
use crate::store::file::new_file::{NewFile, sync_folder};
use crate::store::file::one_name::refuse_names_of_one_another;
use crate::store::look::snapshot::Snapshot;

/// Writes the copy to `to`, which must not exist. The copy is checked: a problem in it was in the store already, or
/// came from copying.
///
/// # Errors
/// `to` exists; there is no store of this version at `path`; one of the two files can't be read or written;
/// [`DeliveryError::Closed`] after a stop. In each case, this leaves no copy at `to`.
pub fn backup(path: &Path, to: &Path, now_ms: i64, stop: &Stop) -> Result<Checked, DeliveryError> {
    refuse_existing(to)?;
    refuse_names_of_one_another(to)?;
    let source = Snapshot::open(path)?;
    let new = NewFile::begin(to, ".part")?;
    new.permit_as(path)?;
    let checked = copy_into(&new, source, stop, |db| is_backup::put(db, now_ms))?;
    refuse_existing(to)?;
    new.rename_to(to)?;
    let absolute = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    sync_folder(&absolute)?;
    Ok(checked)
}

fn refuse_existing(to: &Path) -> Result<(), DeliveryError> {
    if to.symlink_metadata().is_ok() {
        let text = format!("{} exists: name a new file, as a backup is never written over anything", to.display());
        return Err(DeliveryError::Usage(text));
    }
    Ok(())
}
