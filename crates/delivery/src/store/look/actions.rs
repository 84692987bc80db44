//! The last actions on many messages (D16).

use rusqlite::params;

use super::messages::PAGE_BYTES;
use super::snapshot::{Snapshot, optional_text, text};
use crate::base::error::DeliveryError;
use crate::store::tables::bulk_actions::{Filter, Kind};

/// An action, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionSeen {
    /// Its name.
    pub id: String,
    /// What it does.
    pub kind: Kind,
    /// Its messages.
    pub filter: Filter,
    /// When it was begun.
    pub began_ms: i64,
    /// When it was through all of its messages; `None`: it is at work.
    pub ended_ms: Option<i64>,
    /// How many messages were changed so far.
    pub changed: i64,
    /// How many messages were being sent in that moment, and were not changed.
    pub too_late: i64,
}

impl Snapshot {
    /// The last thousand actions, the newest first, or fewer if their names have [`PAGE_BYTES`]; or the action with this id, if it
    /// is kept.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn actions(&self, id: Option<&str>) -> Result<Vec<ActionSeen>, DeliveryError> {
        let query = "SELECT id, kind, key, key_prefix, due_from_ms, due_before_ms, began_ms, ended_ms, changed, too_late \
                     FROM actions WHERE ?1 IS NULL OR id = ?1 ORDER BY n DESC LIMIT 1000";
        let action = |row: &rusqlite::Row<'_>| {
            Ok(ActionSeen {
                id: text(row, 0)?,
                kind: row.get(1)?,
                filter: Filter {
                    key: optional_text(row, 2)?,
                    key_prefix: optional_text(row, 3)?,
                    due_from_ms: row.get(4)?,
                    due_before_ms: row.get(5)?,
                },
                began_ms: row.get(6)?,
                ended_ms: row.get(7)?,
                changed: row.get(8)?,
                too_late: row.get(9)?,
            })
        };
        self.ask(|db| {
            let (mut found, mut bytes) = (Vec::new(), 0);
            for seen in db.prepare_cached(query)?.query_map(params![id], action)? {
                if bytes >= PAGE_BYTES {
                    break;
                }
                let seen = seen?;
                bytes += seen.name_bytes();
                found.push(seen);
            }
            Ok::<_, rusqlite::Error>(found)
        })
    }
}

impl ActionSeen {
    fn name_bytes(&self) -> usize {
        let Filter { key, key_prefix, .. } = &self.filter;
        self.id.len() + [key, key_prefix].into_iter().flatten().map(String::len).sum::<usize>()
    }
}
