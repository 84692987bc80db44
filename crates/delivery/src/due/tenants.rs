//! The limits of each tenant, over all destinations (rule D24).
//!
//! - At most so many messages of a tenant are out. A message counts until its call has returned, cut off or not.
//! - Each message takes a token of its tenant's rate.
//! - A share of a tenant that may send nothing is held back in its queue, from when it is in turn until there is room.
//! - Only tenants that are busy are in memory: with messages out, held back, or with a bucket that is not full.

use rustc_hash::FxHashMap;

use super::pace::{Pace, Rate};

/// What one tenant may do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TenantLimits {
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<Rate>,
}

#[derive(Debug, Default)]
pub(super) struct Tenants {
    limits: TenantLimits,
    busy: FxHashMap<i64, Busy>,
    /// The tenant of each message in each call that has not returned.
    of_calls: FxHashMap<u64, Vec<i64>>,
    /// With so many busy ones it is looked which of them are not any more.
    look_at: usize,
}

#[derive(Debug, Default)]
struct Busy {
    out: usize,
    pace: Pace,
    /// The shares of it that are held back.
    held: Vec<u32>,
}

/// Whether a tenant may send a message.
pub(super) enum MaySend {
    Yes,
    /// Once a call of it has returned, or its alarm has fired.
    Later,
    /// After this time: an alarm is to be set.
    After(u64),
}

impl Tenants {
    pub(super) fn set_limits(&mut self, limits: TenantLimits) {
        self.limits = limits;
    }

    pub(super) fn have_limits(&self) -> bool {
        self.limits.concurrency.is_some() || self.limits.rate.is_some()
    }

    /// Whether one more message may go out. If not, the share waits until [`Tenants::take_held`].
    pub(super) fn may_send(&mut self, tenant: i64, share: u32, now_us: u64) -> MaySend {
        let TenantLimits { concurrency, rate } = self.limits;
        let new = || Busy { pace: Pace::new(rate, now_us), ..Busy::default() };
        let it = self.busy.entry(tenant).or_insert_with(new);
        let has_room = concurrency.is_none_or(|most| it.out < most);
        if has_room && it.pace.may_send() && it.pace.tokens(now_us) > 0 {
            return MaySend::Yes;
        }
        it.held.push(share);
        if has_room && it.pace.may_send() { MaySend::After(it.pace.wait_us()) } else { MaySend::Later }
    }

    /// Whether fewer messages of it are out than may be.
    pub(super) fn has_room(&self, tenant: i64) -> bool {
        self.limits.concurrency.is_none_or(|most| self.busy.get(&tenant).is_none_or(|it| it.out < most))
    }

    /// A message of it goes out. One that goes alone (D6) needs no token.
    pub(super) fn sends(&mut self, tenant: i64, now_us: u64) {
        let new = || Busy { pace: Pace::new(self.limits.rate, now_us), ..Busy::default() };
        let it = self.busy.entry(tenant).or_insert_with(new);
        it.out += 1;
        let token = it.pace.tokens(now_us).min(1);
        it.pace.spend(token);
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
        let Some(it) = self.busy.get_mut(&tenant) else { return Vec::new() };
        if !it.pace.may_send() || self.limits.concurrency.is_some_and(|most| it.out >= most) {
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
    pub(super) fn take_over(&mut self, before: &mut Self) {
        std::mem::swap(self, before);
        for it in self.busy.values_mut() {
            it.held.clear();
            it.pace.goes_on();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.busy.len()
    }
}
