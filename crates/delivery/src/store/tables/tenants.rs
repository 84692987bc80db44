//! The tenants that messages have named, or that were set (rule D24). A tenant keeps its number, also when none of its
//! messages is left. Those with settings of their own are in memory too.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};

use crate::message::shares::{share_of, tenants_at};
use crate::store::Store;
use crate::store::sql::{Result, execute, rows};
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
        let number = if let Some(number) = number_of(&self.db, name)? {
            number
        } else {
            execute(&self.db, "INSERT INTO tenants (name) VALUES (?)", [name])?;
            self.db.last_insert_rowid()
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

/// The numbers of a destination and of a tenant. `None`: any. [`NOT_KNOWN`]: the name has no number, so no message has it.
pub(in crate::store) type Shares = (Option<i64>, Option<i64>);

pub(in crate::store) const NOT_KNOWN: i64 = -1;

/// The condition for rows of these shares, and whether it is about several shares. Then the index does not give them by due
/// time. For a tenant alone, it is asked once for each destination.
pub(in crate::store) fn of_shares(db: &Connection, column: &str, shares: Shares) -> rusqlite::Result<(String, bool)> {
    Ok(match shares {
        (None, None) => ("1".to_owned(), false),
        (Some(NOT_KNOWN), _) | (_, Some(NOT_KNOWN)) => ("0".to_owned(), false),
        (Some(destination), Some(tenant)) => (format!("{column} = {}", share_of(destination, tenant)), false),
        (Some(destination), None) if are_any(db)? => {
            let (first, last) = tenants_at(destination);
            (format!("({column} = {destination} OR {column} BETWEEN {first} AND {last})"), true)
        }
        (Some(destination), None) => (format!("{column} = {destination}"), false),
        (None, Some(tenant)) => {
            let own = share_of(0, tenant);
            let all = format!("SELECT {own} UNION ALL SELECT (share + 1) << 32 | {tenant} FROM destinations");
            (format!("{column} IN ({all})"), true)
        }
    })
}

/// The number of the tenant with this name, if a message has named it.
pub(in crate::store) fn number_of(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let find = "SELECT tenant FROM tenants WHERE name = ?";
    db.prepare_cached(find)?.query_row([name], |row| row.get(0)).optional()
}

/// The name of the tenant with this number.
pub(in crate::store) fn name_of(db: &Connection, tenant: i64) -> rusqlite::Result<Option<Arc<str>>> {
    let name = |row: &rusqlite::Row<'_>| Ok(Arc::from(row.get_ref(0)?.as_str()?));
    db.prepare_cached("SELECT name FROM tenants WHERE tenant = ?")?.query_row([tenant], name).optional()
}
