//! The named destinations of the store, each with its settings (rule D23). All are in memory too.

use rusqlite::{Connection, Row};

use crate::store::Store;
use crate::store::sql::{Result, cached, execute, rows};
use crate::store::types::{Destinations, StoredDestination};

pub(in crate::store) fn load(db: &Connection) -> Result<Destinations> {
    let stored = |row: &Row<'_>| {
        let (name, settings): (String, String) = (row.get(1)?, row.get(2)?);
        Ok(StoredDestination {
            share: row.get(0)?,
            name: name.into(),
            settings: settings.into(),
            is_paused: row.get(3)?,
            failing_since_ms: row.get(4)?,
        })
    };
    let mut found = Destinations::default();
    for it in rows(db, "SELECT share, name, settings, paused_ms IS NOT NULL, failing_ms FROM destinations", [], stored)?
    {
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

    /// Sets a destination. If the name is known, its number stays, and its pause. Failures count anew.
    pub(crate) fn set_destination(&mut self, name: &str, settings: &str) -> Result<StoredDestination> {
        let text = "INSERT INTO destinations (name, settings) VALUES (?, ?) ON CONFLICT (name) WHERE settings <> '' \
                    DO UPDATE SET settings = excluded.settings, failing_ms = NULL RETURNING share, paused_ms IS NOT NULL";
        let (share, is_paused) =
            cached(&self.db, text)?.query_row((name, settings), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (name, settings) = (name.into(), settings.into());
        Ok(self.keep(StoredDestination { name, share, settings, is_paused, failing_since_ms: None }))
    }

    /// Pauses a destination from `paused_ms` on, or ends its pause. One that is paused stays so since its first pause, and
    /// for its reason. Failures count anew.
    pub(crate) fn pause_destination(
        &mut self,
        share: i64,
        paused_ms: Option<i64>,
        reason: Option<&str>,
    ) -> Result<StoredDestination> {
        let text = "UPDATE destinations SET failing_ms = NULL, paused_ms = iif(?1 IS NULL, NULL, coalesce(paused_ms, ?1)), \
                    pause_reason = iif(?1 IS NULL, NULL, coalesce(pause_reason, ?2)) WHERE share = ?3";
        execute(&self.db, text, (paused_ms, reason, share))?;
        let stored = self.destinations.numbered(share).expect("it is known").clone();
        Ok(self.keep(StoredDestination { is_paused: paused_ms.is_some(), failing_since_ms: None, ..stored }))
    }

    /// Notes since when a destination fails.
    pub(crate) fn note_failing(&mut self, share: i64, failing_since_ms: Option<i64>) -> Result<()> {
        execute(&self.db, "UPDATE destinations SET failing_ms = ? WHERE share = ?", (failing_since_ms, share))?;
        let stored = self.destinations.numbered(share).expect("it is known").clone();
        self.keep(StoredDestination { failing_since_ms, ..stored });
        Ok(())
    }

    fn keep(&mut self, stored: StoredDestination) -> StoredDestination {
        self.destinations.add(stored.clone());
        stored
    }

    /// The destination with this number.
    pub(crate) fn destination_numbered(&self, share: i64) -> Option<&StoredDestination> {
        self.destinations.numbered(share)
    }

    /// Removes a destination, with its secrets. No message can name it any more. [`Self::forget_destination`] follows once
    /// it has no messages.
    pub(crate) fn remove_destination(&mut self, share: i64) -> Result<StoredDestination> {
        execute(&self.db, "UPDATE destinations SET settings = '' WHERE share = ?", [share])?;
        let stored = self.destinations.numbered(share).expect("it is known").clone();
        Ok(self.keep(StoredDestination { settings: "".into(), ..stored }))
    }

    pub(crate) fn forget_destination(&mut self, share: i64) -> Result<()> {
        execute(&self.db, "DELETE FROM destinations WHERE share = ?", [share])?;
        self.destinations.forget(share);
        Ok(())
    }
}
