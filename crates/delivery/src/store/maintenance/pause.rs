//! Pauses sending from a store, or resumes it for the next deliverer (D16): for all messages, or for a key. No
//! deliverer may use the store.

use std::path::Path;

use super::{close, open};
use crate::base::display;
use crate::base::error::DeliveryError;
use crate::message::check_name;
use crate::message::incoming::lane_of;
use crate::store::file::owner::Ownership;
use crate::store::look::snapshot::Snapshot;
use crate::store::sql::Result as SqlResult;
use crate::store::tables::{meta, paused_keys};
use crate::store::{MOST_PAUSED_KEYS, PAUSED};

/// # Errors
/// `Usage` if there is no store of this version, it is in use, no message can have this key, or too many keys are
/// paused; the store can't be written.
pub fn pause(path: &Path, key: Option<&str>, is_paused: bool, now_ms: i64) -> Result<(), DeliveryError> {
    check_name(key, "any").map_err(|bad| DeliveryError::Usage(bad.to_string()))?;
    Snapshot::open(path)?.close()?;
    let ownership = Ownership::try_take(path)?;
    let path = ownership.path();
    let db = open(path)?;
    let done = || -> SqlResult<bool> {
        match key.zip(lane_of(key)) {
            None => meta::put(&db, PAUSED, is_paused.then_some(now_ms)).map(|()| true),
            Some((key, lane)) if is_paused => paused_keys::add(&db, lane, key, now_ms),
            Some((_, lane)) => paused_keys::remove(&db, lane).map(|()| true),
        }
    };
    let done = done().map_err(|broken| broken.of(path));
    close(path, db)?;
    if done? {
        return Ok(());
    }
    let most = display::with_commas(MOST_PAUSED_KEYS as usize);
    Err(DeliveryError::Usage(format!("{most} keys are paused in {}: resume one first", path.display())))
}
