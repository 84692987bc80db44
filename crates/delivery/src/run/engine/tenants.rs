//! The busiest tenants in figures, from memory (rule D24), which is looked through in parts, as in `looking.rs`.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Engine;
use crate::due::window::State;
use crate::message::shares::tenant_in;

/// A tenant with messages in memory. It may have more in the store: if memory is full, each has an equal part of it.
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
}

impl Engine {
    /// At most `limit` tenants: those of `first`, and then those with the most messages that are due. At last how many messages
    /// of all others wait, and how many of these are due. It looks at all messages in memory if some have a tenant.
    pub fn tenant_figures(&self, limit: usize, first: &[String]) -> (Vec<TenantSeen>, (u64, u64)) {
        if self.lock_dispatcher().window.named_shares() == 0 {
            return (Vec::new(), (0, 0));
        }
        let (now_ms, mut found) = (self.wall_ms(), FxHashMap::<i64, TenantSeen>::default());
        self.look_through_window(|window, entry| {
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
        });
        let mut found: Vec<(i64, TenantSeen)> = found.into_iter().collect();
        let first: FxHashSet<&str> = first.iter().map(String::as_str).collect();
        found.sort_unstable_by_key(|(tenant, it)| {
            (Reverse((first.contains(it.name.as_str()), it.overdue, it.waiting)), *tenant)
        });
        let others = found.split_off(limit.min(found.len()));
        let others = others.iter().fold((0, 0), |sums, (_, it)| (sums.0 + it.waiting, sums.1 + it.overdue));
        let dispatcher = self.lock_dispatcher();
        let told = found.into_iter().map(|(tenant, it)| {
            let (is_paused, out) = dispatcher.tenant_state(tenant);
            TenantSeen { is_paused, out: out as u64, ..it }
        });
        (told.collect(), others)
    }
}
