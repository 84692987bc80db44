//! Checks whether a store is whole (D20): first by SQLite's own check, then by comparing the tables.
//!
//! It reads one moment, even while the store delivers, and changes nothing. It costs O(n log n) in the messages, and
//! sorts on disk. Memory holds SQLite's page cache and one filter of names at a time (10 MiB for the largest run). It
//! also holds 8 bytes for each message replaced by a newer message of the same name.

use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use super::messages::{self, Ends};
use super::problems::Problems;
use super::{Stop, names};
use crate::base::display::quoted;
use crate::base::error::{DeliveryError, StoreError};
use crate::message::incoming::{Digest, lane_of};
use crate::store::look::snapshot::Snapshot;
use crate::store::open::near::Floor;
use crate::store::sql::{Broken, Result as SqlResult};
use crate::store::tables::meta;

/// In a line of SQLite's check, if the system could not read a page: `SQLITE_IOERR_CORRUPTFS`.
const NOT_READ: &str = "unable to get the page. error code=8458";

/// The result of a check: counts and problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Known messages.
    pub messages: u64,
    /// Messages without an outcome.
    pub open: u64,
    /// A line for each problem.
    pub problems: Vec<String>,
}

/// Checks the store at `path`.
///
/// # Errors
/// `Usage` if there is no store of this format; the store can't be read; [`DeliveryError::Closed`] after a stop.
pub fn check(path: &Path, stop: &Stop) -> Result<Checked, DeliveryError> {
    let checked = check_once(path, stop)?;
    if checked.problems.is_empty() {
        return Ok(checked);
    }
    // SQLite tells a disk that could not be read as damage. If the same is not found again, it was the disk.
    let again = check_once(path, stop)?;
    if again.problems != checked.problems {
        let what = format!("a second look does not find the same as the first, which found: {}", checked.problems[0]);
        return Err(StoreError::new(path, what, "check the disk, and run again").into());
    }
    Ok(again)
}

fn check_once(path: &Path, stop: &Stop) -> Result<Checked, DeliveryError> {
    let snapshot = match Snapshot::open(path) {
        Err(DeliveryError::Store(error)) if error.is_damage() => {
            return Ok(Checked { problems: vec![error.to_string()], ..Checked::default() });
        }
        opened => opened?,
    };
    let checked = check_snapshot(&snapshot, stop)?;
    snapshot.close()?;
    Ok(checked)
}

pub(super) fn check_snapshot(snapshot: &Snapshot, stop: &Stop) -> Result<Checked, DeliveryError> {
    stop.watch(snapshot.db())?;
    look(snapshot.db(), Digest::number).map_err(|broken| stop.or(snapshot.failed(broken)))
}

/// Looks at all tables. `number` computes the number of a name as the store does.
pub(in crate::store) fn look(db: &Connection, number: fn(Digest) -> i64) -> SqlResult<Checked> {
    let mut checked = Checked::default();
    let mut problems = Problems::default();
    match look_at_all(db, number, &mut checked, &mut problems) {
        Err(Broken::Sql(error)) if is_damage(&error) => problems.tell(format!("a table can't be read: {error}")),
        looked => looked?,
    }
    checked.problems = problems.lines();
    Ok(checked)
}

fn look_at_all(
    db: &Connection,
    number: fn(Digest) -> i64,
    checked: &mut Checked,
    problems: &mut Problems,
) -> SqlResult<()> {
    look_at_pages(db, problems)?;
    let ends = look_at_ends(db, problems)?;
    look_at_paused_keys(db, problems)?;
    (checked.messages, checked.open) = messages::look(db, &ends, number, problems)?;
    look_at_events(db, problems)?;
    names::look(db, number, problems)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(of, _) => {
            matches!(of.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)
        }
        // A value has a type that the store never writes in this column.
        _ => true,
    }
}

fn look_at_pages(db: &Connection, problems: &mut Problems) -> SqlResult<()> {
    let mut check = db.prepare("PRAGMA integrity_check(20)")?;
    let mut rows = check.query([])?;
    while let Some(row) = rows.next()? {
        let found: String = row.get(0)?;
        if found.contains(NOT_READ) {
            return Err(Broken::Unusable("the disk could not be read", "check the disk, and run again"));
        }
        if found != "ok" {
            problems.tell(format!("SQLite finds the file damaged: {}", found.replace('\n', "; ")));
        }
    }
    Ok(())
}

fn look_at_ends(db: &Connection, problems: &mut Problems) -> SqlResult<Ends> {
    let ask = |text: &str| -> rusqlite::Result<i64> { db.query_row(text, [], |row| row.get(0)) };
    let last_seq = ask("SELECT ifnull(max(seq), 0) FROM messages")?.max(meta::get_int(db, "last_seq")?);
    let last_n = ask("SELECT ifnull(max(n), 0) FROM ledger")?;
    let floor = Floor { seq: meta::get_int(db, "near_floor_seq")?, n: meta::get_int(db, "near_floor_n")? };
    let (forgotten_n, collected_n) = (meta::get_int(db, "forgotten_n")?, meta::get_int(db, "collected_n")?);
    let id: Option<String> = meta::get(db, "store_id")?;
    if !id.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        problems.tell("the store has no id");
    }
    for (name, value, most) in [
        ("near_floor_seq", floor.seq, last_seq + 1),
        ("near_floor_n", floor.n, last_n),
        ("forgotten_n", forgotten_n, last_n),
        ("collected_n", collected_n, last_n),
    ] {
        if value > most {
            problems.tell(format!("{name} is {value}, and the last one there is {most}"));
        }
    }
    Ok(Ends { floor, forgotten_n, collected_n })
}

fn look_at_paused_keys(db: &Connection, problems: &mut Problems) -> SqlResult<()> {
    let mut select = db.prepare("SELECT lane, key FROM paused_keys")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (lane, key): (i64, String) = (row.get(0)?, row.get(1)?);
        if lane_of(Some(&key)) != Some(lane) {
            problems.tell(format!("the key {} is paused with a lane that is not its own", quoted(&key, 200)));
        }
    }
    Ok(())
}

/// Each event has the number of its open messages, and its data while there are some.
fn look_at_events(db: &Connection, problems: &mut Problems) -> SqlResult<()> {
    let counts = "SELECT ifnull(e.n, w.event), e.open IS NOT ifnull(w.count, 0), e.open > 0 AND e.data IS NULL FROM events e \
                  FULL JOIN (SELECT event, count(*) AS count FROM waits WHERE event > 0 GROUP BY 1) w ON w.event = e.n";
    let mut select = db.prepare(counts)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        problems.add_if(row.get(1)?, "events with another number of open messages than they say", row.get(0)?);
        problems.add_if(row.get::<_, Option<bool>>(2)? == Some(true), "events that miss their data", row.get(0)?);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that the store is whole, also after a crash.
    pub(crate) fn assert_whole(path: &Path, number: fn(Digest) -> i64) {
        let snapshot = Snapshot::open(path).unwrap();
        let checked = look(snapshot.db(), number).map_err(|broken| broken.of(path)).unwrap();
        assert_eq!(checked.problems, Vec::<String>::new(), "{}", path.display());
        snapshot.close().unwrap();
    }
}
