//! The named destinations of the store, each with its settings (rule D23). All are in memory too.

use rusqlite::{Connection, Row};

use crate::store::Store;
use crate::store::sql::{Result, cached, execute, rows};
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

    /// The first destination that was removed, and may have messages.
    pub(crate) fn removed_destination(&self) -> Option<&StoredDestination> {
        self.destinations.removed()
    }

    /// Sets a destination. If the name is known, its number stays.
    pub(crate) fn set_destination(&mut self, name: &str, settings: &str, now_ms: i64) -> Result<StoredDestination> {
        let text = "INSERT INTO destinations (name, settings, set_ms) VALUES (?, ?, ?) ON CONFLICT (name) \
                    WHERE settings <> '' DO UPDATE SET settings = excluded.settings, set_ms = excluded.set_ms RETURNING share";
        let share = cached(&self.db, text)?.query_row((name, settings, now_ms), |row| row.get(0))?;
        let stored = StoredDestination { name: name.into(), share, settings: settings.into() };
        self.destinations.add(stored.clone());
        Ok(stored)
    }

    /// The destination with this number.
    pub(crate) fn destination_numbered(&self, share: i64) -> Option<&StoredDestination> {
        self.destinations.numbered(share)
    }

    /// Removes a destination, with its secrets. No message can name it any more. [`Self::forget_destination`] follows once
    /// it has no messages.
    pub(crate) fn remove_destination(&mut self, share: i64) -> Result<StoredDestination> {
        execute(&self.db, "UPDATE destinations SET settings = '' WHERE share = ?", [share])?;
        let stored = self.destinations.numbered(share).expect("it is known");
        let stored = StoredDestination { settings: "".into(), ..stored.clone() };
        self.destinations.add(stored.clone());
        Ok(stored)
    }

    pub(crate) fn forget_destination(&mut self, share: i64) -> Result<()> {
        execute(&self.db, "DELETE FROM destinations WHERE share = ?", [share])?;
        self.destinations.forget(share);
        Ok(())
    }
}
