//! Makes the names of files durable.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

/// Syncs the folder of this file: a new file may lose its name when the power fails, even if its content was synced.
pub(crate) fn sync_folder(file: &Path) -> Result<(), Error> {
    let path = file.canonicalize()?;
    let Some(folder) = path.parent() else { return Ok(()) };
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // If files in a folder may be made but not listed, the folder can't be opened, and so it can't be synced.
        Err(error) if has_no_disk(&error) || error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// A pipe, a terminal and `/dev/null` have no disk.
pub(crate) fn has_no_disk(error: &Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::ROFS | Errno::OPNOTSUPP))
}
