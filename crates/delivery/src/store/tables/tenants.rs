//! The tenants that messages have named, or that were set (rule D24). A tenant keeps its number, also when none of its
//! messages is left. Those with settings of their own are in memory too.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};

use crate::store::Store;
use crate::store::sql::{Result, cached, execute, rows};
use crate::store::types::{StoredTenant, Tenants};

/// How many numbers are in memory, to be found without a look into the file.
const KNOWN: usize = 10_000;

pub(in crate::store) fn load(db: &Connection) -> Result<Tenants> {
    let set = |row: &Row<'_>| {
        let (number, name, settings): (_, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (name, settings) = (Arc::from(name), Some(settings.into()));
        Ok((Arc::clone(&name), StoredTenant { number, name, settings, paused_ms: row.get(3)? }))
    };
    let query = "SELECT tenant, name, settings, paused_ms FROM tenants WHERE settings IS NOT NULL";
    let set = rows(db, query, [], set)?.into_iter().collect();
    Ok(Tenants { has_any: are_any(db)?, set, ..Tenants::default() })
}

impl Store {
    /// The number of the tenant with this name, which gets one if it is new.
    pub(crate) fn tenant(&mut self, name: &str) -> Result<i64> {
        if let Some(number) = self.tenants.numbers.get(name) {
            return Ok(*number);
        }
        let find = "SELECT tenant FROM tenants WHERE name = ?";
        let number = match cached(&self.db, find)?.query_row([name], |row| row.get(0)).optional()? {
            Some(number) => number,
            None => cached(&self.db, "INSERT INTO tenants (name) VALUES (?) RETURNING tenant")?
                .query_row([name], |row| row.get(0))?,
        };
        self.tenants.has_any = true;
        if self.tenants.numbers.len() >= KNOWN {
            self.tenants.numbers.clear();
        }
        self.tenants.numbers.insert(name.into(), number);
        Ok(number)
    }

    /// The tenants that were set or paused, by name.
    pub(crate) fn set_tenants(&self) -> &BTreeMap<Arc<str>, StoredTenant> {
        &self.tenants.set
    }

    /// Keeps a tenant as it is now.
    pub(crate) fn put_tenant(&mut self, it: &StoredTenant) -> Result<()> {
        let text = "UPDATE tenants SET settings = ?, paused_ms = ? WHERE tenant = ?";
        execute(&self.db, text, (it.settings.as_deref(), it.paused_ms, it.number))?;
        if it.settings.is_some() {
            self.tenants.set.insert(it.name.clone(), it.clone());
        } else {
            self.tenants.set.remove(&it.name);
        }
        Ok(())
    }

    /// Whether a message can have another share than 0.
    pub(in crate::store) fn has_shares(&self) -> bool {
        self.tenants.has_any || !self.destinations.is_empty()
    }
}

fn are_any(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM tenants WHERE tenant > 0")?.exists([])
}

/// The condition for rows of a destination, with those of its tenants. `param`: the parameter with its number. Once there
/// are tenants, the rows are sorted: O(messages of the destination).
pub(in crate::store) fn of_destination(db: &Connection, column: &str, param: &str) -> rusqlite::Result<String> {
    Ok(if are_any(db)? {
        format!("({column} = {param} OR {column} BETWEEN ({param} + 1) << 32 AND (({param} + 2) << 32) - 1)")
    } else {
        format!("{column} = {param}")
    })
}

/// The name of the tenant with this number.
pub(in crate::store) fn name_of(db: &Connection, tenant: i64) -> rusqlite::Result<Option<Arc<str>>> {
    let name = |row: &rusqlite::Row<'_>| Ok(Arc::from(row.get_ref(0)?.as_str()?));
    db.prepare_cached("SELECT name FROM tenants WHERE tenant = ?")?.query_row([tenant], name).optional()
}
