//! Sending from a store that nothing delivers from is paused, or goes on with the next deliverer (D16).

#![forbid(unsafe_code)]

use std::path::Path;

use super::{close, open};
use crate::delivery::error::DeliveryError;
use crate::delivery::store::owner::Ownership;
use crate::delivery::store::snapshot::Snapshot;
use crate::delivery::store::{PAUSED, meta};

/// # Errors
/// `Usage` if there is no store of this version, or it is in use; the store can't be written.
pub(crate) fn pause(path: &Path, is_paused: bool, now_ms: i64) -> Result<(), DeliveryError> {
    Snapshot::open(path)?.close()?;
    let ownership = Ownership::try_take(path)?;
    let path = ownership.path();
    let db = open(path)?;
    let done = meta::put(&db, PAUSED, is_paused.then_some(now_ms)).map_err(|broken| broken.of(path).into());
    close(path, db)?;
    done
}
