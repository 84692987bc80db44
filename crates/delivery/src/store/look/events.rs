//! The events that are remembered (rules D14, D22), in the order in which they came.

use rusqlite::{Row, named_params};

use super::messages::page_of;
use super::snapshot::{Snapshot, optional_text, text};
use crate::base::error::DeliveryError;
use crate::store::sql::cached;

/// An event that lets go what comes later. Times are by the store's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Its number.
    pub n: i64,
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: String,
    /// Its name.
    pub event: String,
    /// When it came.
    pub at_ms: i64,
    /// The end of its time.
    pub until_ms: i64,
    /// How many messages it has let go when it came.
    pub let_go: u32,
    /// `{"name", "id", "payload"}`, as receivers get it.
    pub data: Option<String>,
}

impl Snapshot {
    /// A page of remembered events with numbers after this one, of this key or of all. `true`: there are more.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn remembered(
        &self,
        key: Option<&str>,
        after_n: i64,
        limit: usize,
    ) -> Result<(Vec<Remembered>, bool), DeliveryError> {
        let query = "SELECT n, key, id, event, at_ms, until_ms, let_go, data FROM events \
                     WHERE until_ms IS NOT NULL AND n > :after AND (:key IS NULL OR key = :key) ORDER BY n LIMIT :limit";
        let remembered = |row: &Row<'_>| {
            Ok(Remembered {
                n: row.get(0)?,
                key: text(row, 1)?,
                id: text(row, 2)?,
                event: text(row, 3)?,
                at_ms: row.get(4)?,
                until_ms: row.get(5)?,
                let_go: row.get(6)?,
                data: optional_text(row, 7)?,
            })
        };
        let values = named_params! { ":after": after_n, ":key": key, ":limit": limit as i64 + 1 };
        let bytes = |it: &Remembered| it.key.len() + it.id.len() + it.data.as_ref().map_or(0, String::len);
        self.ask(|db| page_of(cached(db, query)?.query_map(values, remembered)?, limit, bytes))
    }
}
