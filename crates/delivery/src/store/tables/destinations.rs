//! The named destinations of the store, each with its settings (rule D23). All are in memory too.

use rusqlite::{Connection, Row};

use crate::store::Store;
use crate::store::sql::{Result, cached, rows};
use crate::store::types::{Destinations, StoredDestination};

pub(in crate::store) fn load(db: &Connection) -> Result<Destinations> {
    let stored = |row: &Row<'_>| {
        let (name, settings): (String, String) = (row.get(1)?, row.get(2)?);
        Ok(StoredDestination { share: row.get(0)?, name: name.into(), settings: settings.into() })
    };
    let mut found = Destinations::default();
    for it in rows(db, "SELECT share, name, settings FROM destinations", [], stored)? {
        found.add(it);
    }
    Ok(found)
}

impl Store {
    /// The destination with this name.
    pub(crate) fn destination(&self, name: &str) -> Option<&StoredDestination> {
        self.destinations.named(name)
    }

    /// All destinations.
    pub(crate) fn all_destinations(&self) -> impl Iterator<Item = &StoredDestination> {
        self.destinations.all()
    }

    /// Sets a destination. If the name is known, its number stays.
    pub(crate) fn set_destination(&mut self, name: &str, settings: &str, now_ms: i64) -> Result<StoredDestination> {
        let text = "INSERT INTO destinations (name, settings, set_ms) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE \
                    SET settings = excluded.settings, set_ms = excluded.set_ms RETURNING share";
        let share = cached(&self.db, text)?.query_row((name, settings, now_ms), |row| row.get(0))?;
        let stored = StoredDestination { name: name.into(), share, settings: settings.into() };
        self.destinations.add(stored.clone());
        Ok(stored)
    }

    /// The destination with this number.
    pub(crate) fn destination_numbered(&self, share: i64) -> Option<&StoredDestination> {
        self.destinations.numbered(share)
    }
}
