//! What the engine reads of its own store while the writer goes on (S4): how many messages are due, and the earliest due times
//! for the marks.
//!
//! Each call has a connection of its own, so neither the writer nor the senders wait for it.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::base::error::StoreError;
use crate::message::incoming::lane_in;
use crate::message::partition::Earliest;
use crate::message::partition::{PARTITIONS, partition_of, partition_of_id};
use crate::store::file::schema;
use crate::store::open::waiting;

/// The first due time, and the number of messages due by each given time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// `None` if nothing waits.
    pub first_due_ms: Option<i64>,
    /// The counts, in the order of the given times.
    pub due: Vec<u64>,
}

impl Census {
    /// Counts a message that has no row in `waiting`.
    pub(crate) fn add(&mut self, due_ms: i64, until_ms: &[i64]) {
        self.first_due_ms = Some(self.first_due_ms.map_or(due_ms, |first| first.min(due_ms)));
        for (due, until_ms) in self.due.iter_mut().zip(until_ms) {
            *due += u64::from(due_ms <= *until_ms);
        }
    }

    /// Counts the rows of `waiting`, at most `most` for each time.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn add_rows(&mut self, path: &Path, until_ms: &[i64], most: u64) -> Result<(), StoreError> {
        let mut count = || -> rusqlite::Result<()> {
            let db = schema::connect_to_look(path)?;
            let first_due_ms: Option<i64> = waiting::first_due_ms(&db)?;
            self.first_due_ms = self.first_due_ms.into_iter().chain(first_due_ms).min();
            let mut rows = db.prepare("SELECT count(*) FROM (SELECT 1 FROM waiting WHERE due_ms <= ? LIMIT ?)")?;
            for (due, until_ms) in self.due.iter_mut().zip(until_ms) {
                let count: i64 = rows.query_row(params![until_ms, most as i64], |row| row.get(0))?;
                *due = (*due + count as u64).min(most);
            }
            Ok(())
        };
        count().map_err(|error| StoreError::because(path, &error))
    }
}

/// The most rows that are looked at, which takes some milliseconds. If more messages are overdue, the due time of the
/// last row counts for all partitions.
const LOOK: usize = 20_000;

/// Adds the due times of messages in `waiting` that are due by now, and the first due times of moved messages. All
/// are from one moment, at or after the call.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn add_overdue(found: &mut Earliest, path: &Path, now_ms: i64) -> Result<(), StoreError> {
    add_overdue_at_most(found, path, now_ms, LOOK).map_err(|error| StoreError::because(path, &error))
}

fn add_overdue_at_most(found: &mut Earliest, path: &Path, now_ms: i64, most: usize) -> rusqlite::Result<()> {
    let db = schema::connect_to_look(path)?;
    db.execute_batch("BEGIN")?; // a message that moves between two queries would be in neither
    add_moved(found, &db)?;
    let mut name_of = db.prepare("SELECT name, id FROM messages WHERE seq = ?")?;
    let text = "SELECT due_ms, lane, seq, ifnull(share, 0) FROM waiting WHERE due_ms <= ? ORDER BY due_ms, seq LIMIT ?";
    let mut waiting = db.prepare(text)?;
    let mut rows = waiting.query(params![now_ms, most as i64])?;
    let (mut looked, mut last_ms, mut latest_ms) = (0, i64::MIN, found.latest_ms());
    while let Some(row) = rows.next()? {
        let due_ms: i64 = row.get(0)?;
        if due_ms >= latest_ms {
            return Ok(()); // all following rows are later
        }
        let partition = match row.get(1)? {
            Some(lane) => partition_of(lane_in(row.get(3)?, lane)),
            None => name_of.query_row([row.get::<_, i64>(2)?], |row| {
                Ok(partition_of_id(row.get(0)?, row.get_ref(1)?.as_str()?))
            })?,
        };
        found.add(partition, due_ms);
        latest_ms = found.latest_ms();
        (looked, last_ms) = (looked + 1, due_ms);
    }
    if looked == most {
        found.add_to_all(last_ms);
    }
    Ok(())
}

fn add_moved(found: &mut Earliest, db: &Connection) -> rusqlite::Result<()> {
    let mut select = db.prepare("SELECT min(first_due_ms) FROM moved WHERE partition = ?")?;
    for partition in 0..PARTITIONS {
        if let Some(due_ms) = select.query_row([partition], |row| row.get::<_, Option<i64>>(0))? {
            found.add(partition, due_ms);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks for messages in lanes 1, 2 and so on, due at 10, 20 and so on.
    fn marks(overdue: u8, most: usize) -> Vec<i64> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        let db = schema::connect(&path, "OFF", None).unwrap();
        for lane in 1..=overdue {
            let text = "INSERT INTO waiting (due_ms, seq, lane, size) VALUES (?, ?, ?, 1)";
            db.execute(text, params![10 * i64::from(lane), lane, lane]).unwrap();
        }
        let mut found = Earliest::default();
        add_overdue_at_most(&mut found, &path, 1_000, most).unwrap();
        found.marks(1_000)[..5].to_vec()
    }

    #[test]
    fn where_more_are_overdue_than_are_looked_at_the_rest_counts_for_all__s4() {
        assert_eq!(marks(3, 5), [999, 9, 19, 29, 999]);
        assert_eq!(marks(4, 2), [19, 9, 19, 19, 19], "the third and the fourth may be in any");
        assert_eq!(marks(2, 2), [19, 9, 19, 19, 19], "there may be more");
    }
}
