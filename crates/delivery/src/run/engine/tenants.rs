//! The busiest tenants in figures, from memory and from the store (rule D24). Memory is looked through in parts, as in
//! `looking.rs`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::Engine;
use crate::base::error::DeliveryError;
use crate::due::window::State;
use crate::message::shares::tenant_in;
use crate::store::look::tenants::TenantSeen;

/// The most tenants in one list.
const MOST_TENANTS: usize = 1_000;

#[derive(Default)]
struct InMemory {
    seen: TenantSeen,
    due: u64,
    shares: BTreeSet<i64>,
}

impl Engine {
    /// The tenants with the most messages in memory, at most `limit` of them and `MOST_TENANTS`, those with most that waits
    /// first. It reads up to 20,000 entries of an index for each, and nothing if no message in memory has a tenant.
    ///
    /// # Errors
    /// The store cannot be read, or is closed.
    pub fn tenant_figures(&self, limit: usize) -> Result<Vec<TenantSeen>, DeliveryError> {
        let now_ms = self.wall_ms();
        let mut found: FxHashMap<i64, InMemory> = FxHashMap::default();
        if self.lock_dispatcher().window.named_shares() == 0 {
            return Ok(Vec::new());
        }
        self.look_through_window(|window, entry| {
            let share = window.share(entry.share).id;
            if tenant_in(share) == 0 || entry.state == State::Over {
                return;
            }
            let it = found.entry(tenant_in(share)).or_default();
            let is_due = u64::from(entry.due_ms <= now_ms);
            it.due += is_due;
            it.shares.insert(share);
            it.seen.waiting += u64::from(entry.is_near);
            it.seen.overdue += is_due * u64::from(entry.is_near);
            it.seen.first_due_ms = it.seen.first_due_ms.into_iter().chain([entry.due_ms]).min();
        });
        let mut found: Vec<(i64, InMemory)> = found.into_iter().collect();
        found.sort_unstable_by_key(|(tenant, it)| (Reverse(it.due), it.seen.first_due_ms, *tenant));
        found.truncate(limit.min(MOST_TENANTS));
        {
            let dispatcher = self.lock_dispatcher();
            for (tenant, it) in &mut found {
                dispatcher.tell_tenant(*tenant, &it.shares, &mut it.seen);
            }
        }
        let snapshot = self.snapshot()?;
        let mut seen = Vec::with_capacity(found.len());
        for (tenant, it) in found {
            let (name, waiting, overdue) = snapshot.waiting_of_tenant(tenant, &it.shares, now_ms)?;
            let (waiting, overdue) = (it.seen.waiting + waiting, it.seen.overdue + overdue);
            seen.push(TenantSeen { name, waiting, overdue, ..it.seen });
        }
        seen.sort_by_key(|it| Reverse((it.overdue, it.waiting)));
        Ok(seen)
    }
}
