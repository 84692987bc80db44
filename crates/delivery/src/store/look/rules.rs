//! The names of the open recurring messages (D19, S4), read by a separate connection. The source of a recurring
//! message keeps a copy of it as long as its name is in this list.

use std::path::Path;

use crate::base::error::StoreError;
use crate::message::partition::{partition_of_id, partition_of_lane};
use crate::message::recurrence::NEVER_MS;
use crate::store::file::schema;

/// The most bytes of names in an answer.
const MOST_BYTES: usize = 256 << 10;

/// A key and an id.
pub type Name = (Option<String>, String);

/// The names in a partition; `None` if there are too many. All are from one moment, at or after the call. The query
/// reads all recurring messages, which takes 20 ms for 100,000.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn rules_of(path: &Path, partition: u8) -> Result<Option<Vec<Name>>, StoreError> {
    at_most(path, partition, MOST_BYTES).map_err(|error| StoreError::because(path, &error))
}

fn at_most(path: &Path, partition: u8, most_bytes: usize) -> rusqlite::Result<Option<Vec<Name>>> {
    let db = schema::connect_to_look(path)?;
    let text = "SELECT lane, name, key, id FROM waiting w JOIN messages m ON m.seq = w.seq WHERE w.due_ms = ?";
    let mut select = db.prepare(text)?;
    let mut rows = select.query([NEVER_MS])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let of = match row.get(0)? {
            Some(lane) => partition_of_lane(lane),
            None => partition_of_id(row.get(1)?, row.get_ref(3)?.as_str()?),
        };
        if of != partition {
            continue;
        }
        let name: Name = (row.get(2)?, row.get(3)?);
        bytes += name.0.as_ref().map_or(0, String::len) + name.1.len();
        if bytes > most_bytes {
            return Ok(None);
        }
        found.push(name);
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use rusqlite::params;

    use super::*;
    use crate::message::incoming::{Digest, lane_of};
    use crate::message::partition::partition_of_name;

    #[test]
    fn those_of_a_partition_are_told_unless_they_are_too_many__s4_d19() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        let db = schema::connect(&path, "OFF").unwrap();
        let names =
            [(Some("k"), "a", NEVER_MS), (Some("k"), "b", NEVER_MS), (Some("k"), "once", 7), (None, "c", NEVER_MS)];
        for (seq, (key, id, due_ms)) in (0i64..).zip(names) {
            let text = "INSERT INTO messages (seq, name, due_ms, key, id, content) VALUES (?, ?, ?, ?, ?, x'')";
            db.execute(text, params![seq, Digest::of(key, id).number(), due_ms, key, id]).unwrap();
            let text = "INSERT INTO waiting (due_ms, seq, lane, size) VALUES (?, ?, ?, 1)";
            db.execute(text, params![due_ms, seq, lane_of(key)]).unwrap();
        }
        let told = |partition: u8, most: usize| at_most(&path, partition, most).unwrap();
        let key = Some("k".to_owned());
        let (with_key, without) = (partition_of_name(Some("k"), ""), partition_of_name(None, "c"));
        assert_eq!(told(with_key, 4), Some(vec![(key.clone(), "a".to_owned()), (key, "b".to_owned())]));
        assert_eq!(told(without, 1), Some(vec![(None, "c".to_owned())]));
        assert_eq!(told(with_key, 3), None);
        let other = (0..64).find(|it| ![with_key, without].contains(it)).unwrap();
        assert_eq!(told(other, 0), Some(vec![]));
    }
}
