//! The busiest tenants in figures, from memory (rule D24), which is looked through in parts, as in `looking.rs`.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Engine;
use crate::due::tenants::OTHERS;
use crate::due::window::{Entry, State, Window};
use crate::message::shares::tenant_in;

/// A tenant with messages in memory, or with an answer. It may have more in the store: if memory is full, each has an
/// equal part of it. Of answers only the first 10,000 tenants that had one have their own counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSeen {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Messages without an outcome.
    pub waiting: u64,
    /// How many of them are due.
    pub overdue: u64,
    /// How many of them have failed, and will be tried again.
    pub failing: u64,
    /// When the first of them is due, or was, in milliseconds since 1970.
    pub first_due_ms: Option<i64>,
    /// Messages in calls that have not returned.
    pub out: u64,
    /// Messages that have arrived.
    pub delivered: u64,
    /// Those among them that were sent more than a second after they were due.
    pub late: u64,
    /// How late all of them were together, in microseconds.
    pub lateness_us: u64,
    /// Attempts that failed, also those that do not count.
    pub failed: u64,
}

impl TenantSeen {
    /// The sums of both, without names and due times.
    fn and(self, it: &Self) -> Self {
        Self {
            waiting: self.waiting + it.waiting,
            overdue: self.overdue + it.overdue,
            delivered: self.delivered + it.delivered,
            late: self.late + it.late,
            lateness_us: self.lateness_us.saturating_add(it.lateness_us),
            failed: self.failed + it.failed,
            ..self
        }
    }
}

impl Engine {
    /// At most `limit` tenants: those of `first`, then those with the most messages that are due, and then those that most was
    /// delivered for. At last the sums of all others. It looks at all messages in memory if some have a tenant.
    pub fn tenant_figures(&self, limit: usize, first: &[String]) -> (Vec<TenantSeen>, TenantSeen) {
        let (now_ms, mut found) = (self.wall_ms(), FxHashMap::<i64, TenantSeen>::default());
        let has_any = {
            let dispatcher = self.lock_dispatcher();
            for it in dispatcher.tenant_tallies() {
                let name = it.name.to_string();
                let (delivered, late, lateness_us, failed) = (it.delivered, it.late, it.lateness_us, it.failed);
                let seen = TenantSeen { name, delivered, late, lateness_us, failed, ..TenantSeen::default() };
                found.insert(it.id, seen);
            }
            dispatcher.window.named_shares() > 0
        };
        let unnamed = found.remove(&OTHERS).unwrap_or_default();
        let mut see = |window: &Window, entry: &Entry| {
            let tenant = tenant_in(window.share(entry.share).id);
            let Some(body) = entry.body.as_ref().filter(|_| tenant != 0 && entry.state != State::Over) else { return };
            let it = found.entry(tenant).or_default();
            if it.waiting == 0 {
                body.tenant().unwrap_or_default().clone_into(&mut it.name);
            }
            it.waiting += 1;
            it.overdue += u64::from(entry.due_ms <= now_ms);
            it.failing += u64::from(entry.attempts > 0);
            it.first_due_ms = it.first_due_ms.into_iter().chain([entry.due_ms]).min();
        };
        if has_any {
            self.look_through_window(&mut see);
        }
        let mut found: Vec<(i64, TenantSeen)> = found.into_iter().collect();
        let first: FxHashSet<&str> = first.iter().map(String::as_str).collect();
        found.sort_unstable_by_key(|(tenant, it)| {
            (Reverse((first.contains(it.name.as_str()), it.overdue, it.waiting, it.delivered)), *tenant)
        });
        let others = found.split_off(limit.min(found.len()));
        let others = others.iter().fold(unnamed, |sums, (_, it)| sums.and(it));
        let dispatcher = self.lock_dispatcher();
        let told = found.into_iter().map(|(tenant, it)| {
            let (is_paused, out) = dispatcher.tenant_state(tenant);
            TenantSeen { is_paused, out: out as u64, ..it }
        });
        (told.collect(), others)
    }
}
