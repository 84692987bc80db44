//! The limits of each tenant, over all destinations (rule D24).
//!
//! - A tenant has the usual limits, or those that it was set to. It may be paused.
//! - At most so many messages of a tenant are out. A message counts until its call has returned, cut off or not. All count,
//!   also those of tenants without a limit, as it may be set while they are out.
//! - Each message takes a token of its tenant's rate.
//! - A share of a tenant that may send nothing is held back in its queue, from when it is in turn until there is room.
//! - The first tenants with an answer have counts of their own, until the process ends. All others have one tally together.
//! - Only tenants that are busy are in memory: with messages out, held back, or with a bucket that is not full.

use rustc_hash::FxHashMap;

use super::pace::{Pace, Rate};
use super::tallies::{Tallies, Tally};
use crate::message::named::TenantSettings;
use crate::store::StoredTenant;

/// How many tenants have counts of their own: 2 MB.
pub(crate) const MOST_TALLIED: usize = 10_000;
/// The number of all others together, which no tenant has.
pub(crate) const OTHERS: i64 = 0;

/// The limits of one tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantLimits {
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<Rate>,
    pub(crate) weight: u32,
    pub(crate) is_paused: bool,
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self { concurrency: None, rate: None, weight: 1, is_paused: false }
    }
}

impl TenantLimits {
    fn have_room(self, out: usize) -> bool {
        !self.is_paused && self.concurrency.is_none_or(|most| out < most)
    }
}

#[derive(Debug, Default)]
pub(super) struct Tenants {
    usual: TenantLimits,
    /// The tenants that were set or paused.
    set: FxHashMap<i64, TenantLimits>,
    busy: FxHashMap<i64, Busy>,
    /// The tenant of each message in each call that has not returned.
    of_calls: FxHashMap<u64, Vec<i64>>,
    pub(super) tallies: Tallies,
    /// When there are so many busy ones, the idle ones are forgotten.
    look_at: usize,
}

#[derive(Debug, Default)]
struct Busy {
    out: usize,
    pace: Pace,
    /// The shares of it that are held back.
    held: Vec<u32>,
}

impl Tenants {
    /// Before the start: what tenants may do that are not set.
    pub(super) fn set_usual(&mut self, usual: TenantLimits) {
        self.usual = usual;
    }

    /// The tenant may do this from now on. Returns the shares that may go on.
    pub(super) fn set(&mut self, stored: &StoredTenant, now_us: u64) -> Vec<u32> {
        let (tenant, before) = (stored.number, self.limits(stored.number).rate);
        match &stored.settings {
            Some(settings) => _ = self.set.insert(tenant, self.limits_of(settings, stored.paused_ms.is_some())),
            None => _ = self.set.remove(&tenant),
        }
        let rate = self.limits(tenant).rate;
        if let Some(it) = self.busy.get_mut(&tenant).filter(|_| rate != before) {
            it.pace.set(rate, now_us);
        }
        self.take_held(tenant, now_us)
    }

    fn limits_of(&self, settings: &str, is_paused: bool) -> TenantLimits {
        // A version that can't read them sends nothing of it.
        let Ok(TenantSettings { rate, concurrency, weight, .. }) = serde_json::from_str(settings) else {
            return TenantLimits { is_paused: true, ..self.usual };
        };
        TenantLimits {
            concurrency: concurrency.or(self.usual.concurrency),
            rate: rate.and_then(|rate| Rate::parse(&rate).ok()).or(self.usual.rate),
            weight: weight.unwrap_or(self.usual.weight),
            is_paused,
        }
    }

    pub(super) fn limits(&self, tenant: i64) -> TenantLimits {
        self.set.get(&tenant).copied().unwrap_or(self.usual)
    }

    /// Whether one more message may go out. If not, the share waits until [`Tenants::take_held`], and an alarm is to be set if
    /// only a token is missing: after this time.
    pub(super) fn may_send(&mut self, tenant: i64, share: u32, now_us: u64) -> Result<(), Option<u64>> {
        if self.free(tenant, now_us) > 0 {
            return Ok(());
        }
        let limits = self.limits(tenant);
        let it = self.busy(tenant, now_us);
        it.held.push(share);
        let waits_for_token = limits.have_room(it.out) && it.pace.may_send();
        Err(waits_for_token.then(|| it.pace.wait_us(now_us)))
    }

    /// How many more messages may go out now.
    pub(super) fn free(&self, tenant: i64, now_us: u64) -> usize {
        let TenantLimits { concurrency, rate, is_paused, .. } = self.limits(tenant);
        let (out, tokens) = match self.busy.get(&tenant) {
            Some(it) => (it.out, if it.pace.may_send() { it.pace.tokens(now_us) } else { 0 }),
            None => (0, Pace::new(rate, now_us).tokens(now_us)),
        };
        if is_paused { 0 } else { concurrency.map_or(usize::MAX, |most| most.saturating_sub(out)).min(tokens) }
    }

    /// Whether a share is held back until a call of its tenant ends.
    pub(super) fn wait_for_calls(&self) -> bool {
        let waits =
            |limits: TenantLimits, it: &Busy| !it.held.is_empty() && !limits.is_paused && !limits.have_room(it.out);
        self.busy.iter().any(|(tenant, it)| waits(self.limits(*tenant), it))
    }

    /// Whether it is paused, or its bucket is empty at this time.
    pub(super) fn pauses(&self, tenant: i64, at_us: u64) -> bool {
        self.limits(tenant).is_paused || self.busy.get(&tenant).is_some_and(|it| it.pace.tokens(at_us) == 0)
    }

    /// The counts of a tenant, or of all others.
    pub(super) fn tally_of(&mut self, tenant: i64, name: &str) -> &mut Tally {
        let has_own = self.tallies.len() < MOST_TALLIED || self.tallies.get(tenant).is_some();
        if has_own { self.tallies.of(tenant, name) } else { self.tallies.of(OTHERS, "") }
    }

    fn busy(&mut self, tenant: i64, now_us: u64) -> &mut Busy {
        let rate = self.limits(tenant).rate;
        self.busy.entry(tenant).or_insert_with(|| Busy { pace: Pace::new(rate, now_us), ..Busy::default() })
    }

    /// A message of it goes out.
    pub(super) fn sends(&mut self, tenant: i64, now_us: u64) {
        let it = self.busy(tenant, now_us);
        it.out += 1;
        it.pace.spend(1, now_us);
    }

    pub(super) fn begin_call(&mut self, number: u64, tenants: Vec<i64>) {
        if !tenants.is_empty() {
            self.of_calls.insert(number, tenants);
        }
    }

    /// The call has returned. Returns the shares that may go on.
    pub(super) fn end_call(&mut self, number: u64, now_us: u64) -> Vec<u32> {
        let mut going_on = Vec::new();
        for tenant in self.of_calls.remove(&number).unwrap_or_default() {
            if let Some(it) = self.busy.get_mut(&tenant) {
                it.out -= 1;
                going_on.extend(self.take_held(tenant, now_us));
            }
        }
        going_on
    }

    /// The alarm for its tokens has fired. Returns the shares that may go on.
    pub(super) fn goes_on(&mut self, tenant: i64, now_us: u64) -> Vec<u32> {
        if let Some(it) = self.busy.get_mut(&tenant) {
            it.pace.goes_on();
        }
        self.take_held(tenant, now_us)
    }

    fn take_held(&mut self, tenant: i64, now_us: u64) -> Vec<u32> {
        let limits = self.limits(tenant);
        let Some(it) = self.busy.get_mut(&tenant) else { return Vec::new() };
        if !it.pace.may_send() || !limits.have_room(it.out) {
            return Vec::new();
        }
        let held = std::mem::take(&mut it.held);
        if it.out == 0 && it.pace.is_rested(now_us) {
            self.busy.remove(&tenant);
        }
        held
    }

    /// Forgets the tenants that have nothing to do, once there are twice as many as the last time.
    pub(super) fn forget_idle(&mut self, now_us: u64) {
        if self.busy.len() < self.look_at {
            return;
        }
        self.busy.retain(|_, it| it.out > 0 || !it.held.is_empty() || !it.pace.is_rested(now_us));
        self.look_at = 2 * self.busy.len() + 64;
    }

    /// The queues are new, and calls that were cut off go on.
    pub(super) fn take_over(&mut self, before: &mut Self, now_us: u64) {
        self.of_calls = std::mem::take(&mut before.of_calls);
        self.tallies.take_over(&mut before.tallies);
        for (tenant, mut it) in before.busy.drain() {
            it.held.clear();
            it.pace.set(self.limits(tenant).rate, now_us);
            self.busy.insert(tenant, it);
        }
    }

    pub(super) fn state(&self, tenant: i64) -> (bool, usize) {
        (self.limits(tenant).is_paused, self.busy.get(&tenant).map_or(0, |it| it.out))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.busy.len()
    }
}
