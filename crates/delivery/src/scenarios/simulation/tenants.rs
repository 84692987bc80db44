//! The settings of tenants that the model expects (D24), and the checks of each send.

use std::collections::BTreeMap;

use super::World;
use super::pacing::allowed;
use super::types::{Asked, Name};
use crate::due::pace::Rate;
use crate::group::items::{Answer, TenantChange};
use crate::message::named::TenantSettings;
use crate::message::shares;
use crate::sinks::Delivery;

#[derive(Default)]
pub(super) struct Tenants {
    /// How many there are.
    pub(super) count: u8,
    /// Those that were set or paused.
    on_disk: BTreeMap<u8, TenantSettings>,
    /// As the engine has them.
    now: BTreeMap<u8, TenantSettings>,
    /// When messages of each went out, since its rate is what it is.
    sent_us: BTreeMap<u8, Vec<u64>>,
}

pub(super) fn tenant(number: u8) -> String {
    format!("t{number}")
}

impl World {
    /// The tenant of the messages with this name; 0: none.
    pub(super) fn tenant_of(&self, name: Name) -> u8 {
        name.1 / self.shares as u8 % (self.tenants.count + 1)
    }

    /// The share of the messages with this name.
    pub(super) fn share_of(&self, name: Name) -> i64 {
        shares::share_of(i64::from(name.1) % self.shares, i64::from(self.tenant_of(name)))
    }

    pub(super) fn ask_tenant(&mut self) -> Asked {
        let number = 1 + self.random.below(u64::from(self.tenants.count)) as u8;
        let change = match self.random.below(6) {
            0 => TenantChange::Remove,
            it @ 1..=2 => return Asked::PauseTenant(number, it == 1),
            _ => {
                let rates = ["1/s", "7/s", "50/s", "20000/s"];
                let settings = TenantSettings {
                    rate: (self.random.below(3) == 0).then(|| rates[self.random.below(4) as usize].to_owned()),
                    concurrency: (self.random.below(2) == 0).then(|| 1 + self.random.below(3) as usize),
                    weight: (self.random.below(2) == 0).then(|| 1 + self.random.below(100) as u32),
                    paused: (self.random.below(4) == 0).then(|| self.random.below(2) == 0),
                };
                TenantChange::Set(serde_json::to_string(&settings).unwrap())
            }
        };
        Asked::Tenant(number, change)
    }

    /// The change is on disk.
    pub(super) fn change_tenant(&mut self, number: u8, change: &TenantChange) -> Answer {
        let known = self.tenants.on_disk.get(&number).cloned();
        let was_paused = known.as_ref().is_some_and(|it| it.paused == Some(true));
        let is_known = known.is_some();
        match change {
            TenantChange::Set(json) => {
                let it: TenantSettings = serde_json::from_str(json).unwrap();
                let paused = Some(it.paused.unwrap_or(was_paused));
                self.tenants.on_disk.insert(number, TenantSettings { paused, ..it });
                if is_known { Answer::Replaced } else { Answer::Accepted }
            }
            TenantChange::Remove => {
                self.tenants.on_disk.remove(&number);
                if is_known { Answer::Removed } else { Answer::Unknown }
            }
        }
    }

    /// The pause is on disk, or is over.
    pub(super) fn pause_tenant(&mut self, number: u8, is_paused: bool) -> Answer {
        let known = self.tenants.on_disk.get(&number).cloned();
        if known.is_some() || is_paused {
            let it = TenantSettings { paused: Some(is_paused), ..known.unwrap_or_default() };
            self.tenants.on_disk.insert(number, it);
        }
        if is_paused { Answer::Paused } else { Answer::Resumed }
    }

    /// The engine has the settings that are on disk.
    pub(super) fn publish_tenants(&mut self) {
        let before: Vec<_> = (1..=self.tenants.count).map(|number| self.tenant_rate(number)).collect();
        self.tenants.now = self.tenants.on_disk.clone();
        for (number, before) in (1..=self.tenants.count).zip(before) {
            if self.tenant_rate(number) != before {
                self.tenants.sent_us.remove(&number); // the bucket is full at most
            }
        }
        let on_disk = self.tenants.now.iter().map(|(number, it)| (tenant(*number), it.clone())).collect();
        assert_eq!(self.engine.tenants().unwrap(), on_disk);
    }

    /// A new process: nothing is out, and the buckets are full.
    pub(super) fn begin_tenants(&mut self) {
        self.tenants.sent_us.clear();
        self.publish_tenants();
    }

    pub(super) fn has_set_tenants(&self) -> bool {
        !self.tenants.on_disk.is_empty()
    }

    fn tenant_rate(&self, number: u8) -> Option<Rate> {
        let own = self.tenants.now.get(&number).and_then(|it| it.rate.as_deref());
        own.map(|rate| Rate::parse(rate).unwrap()).or(self.settings.tenant_rate)
    }

    fn tenant_concurrency(&self, number: u8) -> Option<usize> {
        self.tenants.now.get(&number).and_then(|it| it.concurrency).or(self.settings.tenant_concurrency)
    }

    fn is_tenant_paused(&self, number: u8) -> bool {
        self.tenants.now.get(&number).is_some_and(|it| it.paused == Some(true))
    }

    /// Its messages in calls that have not returned.
    fn out_of_tenant(&self, number: u8) -> usize {
        self.flights.iter().flat_map(|it| &it.tenants).filter(|it| **it == number).count()
    }

    /// These go out in one send, which is noted.
    pub(super) fn check_tenants(&mut self, deliveries: &[Delivery], of: &[u8]) {
        for (delivery, number) in deliveries.iter().zip(of) {
            assert_eq!(delivery.body.tenant().map(str::to_owned), (*number > 0).then(|| tenant(*number)));
        }
        for number in 1..=self.tenants.count {
            let count = of.iter().copied().filter(|it| *it == number).count();
            if count == 0 {
                continue;
            }
            assert!(!self.is_tenant_paused(number), "t{number} is paused");
            let out = self.out_of_tenant(number);
            let most = self.tenant_concurrency(number).unwrap_or(usize::MAX);
            assert!(out <= most, "{out} of t{number} are out, and {most} may be");
            let now_us = self.engine.clock().now_us();
            let rate = self.tenant_rate(number);
            let sent_us = self.tenants.sent_us.entry(number).or_default();
            let may_go = rate.map_or(u64::MAX, |rate| allowed(rate, sent_us, now_us));
            assert!(count as u64 <= may_go, "{count} of t{number} were sent, and {may_go} may be");
            sent_us.extend(std::iter::repeat_n(now_us, count));
        }
    }

    /// Whether messages of this name may wait for their tenant.
    pub(super) fn may_wait_for_tenant(&self, name: Name) -> bool {
        let number = self.tenant_of(name);
        number > 0
            && (self.is_tenant_paused(number)
                || self.tenant_rate(number).is_some()
                || self.tenant_concurrency(number).is_some_and(|most| self.out_of_tenant(number) >= most))
    }
}
