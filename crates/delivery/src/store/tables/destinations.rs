//! The named destinations of the store, each with its settings (rule D23). All are in memory too.

use rusqlite::{Connection, Row};

use crate::message::shares::destination_in;
use crate::store::Store;
use crate::store::sql::{Result, cached, execute, rows};
use crate::store::types::{Destinations, StoredDestination};

pub(in crate::store) fn load(db: &Connection) -> Result<Destinations> {
    let stored = |row: &Row<'_>| {
        let (share, name, settings): (_, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (paused_ms, pause_reason, failing_ms): (_, Option<String>, _) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let (name, settings, pause_reason) = (name.into(), settings.into(), pause_reason.map(Into::into));
        Ok(StoredDestination { name, share, settings, paused_ms, pause_reason, failing_ms })
    };
    let mut found = Destinations::default();
    for it in
        rows(db, "SELECT share, name, settings, paused_ms, pause_reason, failing_ms FROM destinations", [], stored)?
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

    /// Keeps a destination as it is now. One with the number 0 is new, and gets a number.
    pub(crate) fn put_destination(&mut self, it: StoredDestination) -> Result<StoredDestination> {
        let text = "INSERT INTO destinations (share, name, settings, paused_ms, pause_reason, failing_ms) \
                    VALUES (nullif(?, 0), ?, ?, ?, ?, ?) ON CONFLICT (share) DO UPDATE SET settings = excluded.settings, \
                    paused_ms = excluded.paused_ms, pause_reason = excluded.pause_reason, \
                    failing_ms = excluded.failing_ms RETURNING share";
        let values = (it.share, &*it.name, &*it.settings, it.paused_ms, it.pause_reason.as_deref(), it.failing_ms);
        let mut share = cached(&self.db, text)?.returned(values, |row| row.get(0))?;
        let it = StoredDestination { share: share.pop().expect("it was put"), ..it };
        self.destinations.add(it.clone());
        Ok(it)
    }

    /// The destination of this share.
    pub(crate) fn destination_numbered(&self, share: i64) -> Option<&StoredDestination> {
        self.destinations.numbered(destination_in(share))
    }

    /// A removed destination has no messages any more.
    pub(crate) fn forget_destination(&mut self, share: i64) -> Result<()> {
        execute(&self.db, "DELETE FROM destinations WHERE share = ?", [share])?;
        self.destinations.forget(share);
        Ok(())
    }
}
