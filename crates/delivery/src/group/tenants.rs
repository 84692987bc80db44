//! Tenants are set, paused and removed (D24). Whether messages have named them does not matter.

use super::{Changed, Group};
use crate::group::items::{Answer, TenantChange};
use crate::message::named::TenantSettings;
use crate::store::{Result, StoredTenant};

impl Group<'_> {
    /// Returns the operation and its answer.
    pub(super) fn change_tenant(&mut self, name: &str, change: TenantChange) -> Result<(&'static str, Answer)> {
        let operation = match change {
            TenantChange::Set(_) => "set_tenant",
            TenantChange::Pause(true) => "pause",
            TenantChange::Pause(false) => "resume",
            TenantChange::Remove => "remove_tenant",
        };
        let known = self.store.set_tenants().get(name).cloned();
        let is_new = known.is_none();
        let mut it = match (known, &change) {
            (_, TenantChange::Set(_) | TenantChange::Pause(true)) if self.dispatcher.lock().window.is_global() => {
                return Ok((operation, Answer::Refused));
            }
            (Some(known), _) => known,
            (None, TenantChange::Remove) => return Ok((operation, Answer::Unknown)),
            (None, TenantChange::Pause(false)) => return Ok((operation, Answer::Resumed)),
            (None, _) => {
                StoredTenant { number: self.store.tenant(name)?, name: name.into(), ..StoredTenant::default() }
            }
        };
        it.settings = it.settings.or(Some("{}".into()));
        let (before, now_ms) = (it.paused_ms, self.now_ms);
        let paused = |is_paused: bool| is_paused.then(|| before.unwrap_or(now_ms));
        let answer = match change {
            TenantChange::Set(settings) => {
                let mut after: TenantSettings = serde_json::from_str(&settings).expect("it was checked");
                it.paused_ms = after.paused.take().map_or(before, paused);
                it.settings = Some(serde_json::to_string(&after).expect("it is plain data").into());
                if is_new { Answer::Accepted } else { Answer::Replaced }
            }
            TenantChange::Pause(is_paused) => {
                it.paused_ms = paused(is_paused);
                if is_paused { Answer::Paused } else { Answer::Resumed }
            }
            TenantChange::Remove => {
                (it.settings, it.paused_ms) = (None, None);
                Answer::Removed
            }
        };
        self.store.put_tenant(&it)?;
        self.changed.push(Changed::Tenant(it));
        Ok((operation, answer))
    }
}
