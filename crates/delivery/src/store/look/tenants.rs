//! How much waits for a tenant (rule D24).

use std::collections::BTreeSet;

use super::destinations::MOST_COUNTED;
use super::snapshot::Snapshot;
use crate::base::error::DeliveryError;
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::cached;
use crate::store::tables::tenants::name_of;

/// A tenant with messages that are due, or will be soon. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSeen {
    /// Its name.
    pub name: String,
    /// Whether nothing of it is sent, as it is set.
    pub is_paused: bool,
    /// Messages without an outcome at the destinations for which some are in memory, up to 10,000 each.
    pub waiting: u64,
    /// How many of them are due, counted in the same way.
    pub overdue: u64,
    /// When the first of its messages in memory is due, or was.
    pub first_due_ms: Option<i64>,
    /// Messages in calls that have not returned.
    pub out: u64,
    /// Messages that have arrived since the tenant had nothing to do for the last time.
    pub delivered: u64,
    /// Those among them that were sent more than a second after they were due.
    pub late: u64,
    /// Attempts that failed since then, also those that do not count.
    pub failed: u64,
}

impl Snapshot {
    /// The name of a tenant, how many rows of these shares are in `waiting`, and how many of them are due, each counted up
    /// to `MOST_COUNTED` in each share.
    pub(crate) fn waiting_of_tenant(
        &self,
        tenant: i64,
        shares: &BTreeSet<i64>,
        now_ms: i64,
    ) -> Result<(String, u64, u64), DeliveryError> {
        let query = "SELECT count(*) FROM (SELECT 1 FROM waiting WHERE share = ? AND due_ms < ? LIMIT ?)";
        self.ask(|db| {
            let count = |before_ms: i64| {
                let mut sum = 0;
                for share in shares {
                    let values = (share, before_ms, MOST_COUNTED as i64);
                    sum += cached(db, query)?.query_row(values, |row| row.get::<_, i64>(0))?;
                }
                Ok::<_, rusqlite::Error>(sum as u64)
            };
            let name = name_of(db, tenant)?.unwrap_or_default();
            Ok::<_, rusqlite::Error>((name.to_string(), count(NEVER_MS)?, count(now_ms.saturating_add(1))?))
        })
    }
}
