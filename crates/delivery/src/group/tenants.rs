//! Tenants are set, paused and removed (D24). Whether messages have named them does not matter.

use super::{Changed, Group};
use crate::group::items::{Answer, TenantChange};
use crate::message::named::TenantSettings;
use crate::store::{PartKind, Result, StoredTenant};

impl Group<'_> {
    /// Returns the operation and its answer.
    pub(super) fn change_tenant(&mut self, name: &str, change: TenantChange) -> Result<(&'static str, Answer)> {
        let known = self.store.set_tenants().get(name).cloned();
        let TenantChange::Set(settings) = change else {
            let Some(known) = known else { return Ok(("remove_tenant", Answer::Unknown)) };
            self.store.put_pause_end(PartKind::Tenant, name, None)?;
            self.put_tenant(StoredTenant { settings: None, paused_ms: None, ..known })?;
            return Ok(("remove_tenant", Answer::Removed));
        };
        if self.is_global() {
            return Ok(("set_tenant", Answer::Refused));
        }
        let answer = if known.is_some() { Answer::Replaced } else { Answer::Accepted };
        let mut it = self.tenant_to_set(name)?;
        let mut after: TenantSettings = serde_json::from_str(&settings).expect("it was checked");
        if let Some(is_paused) = after.paused.take() {
            it.paused_ms = self.paused_since(is_paused, it.paused_ms);
            self.store.put_pause_end(PartKind::Tenant, name, None)?;
        }
        it.settings = Some(serde_json::to_string(&after).expect("it is plain data").into());
        self.put_tenant(it)?;
        Ok(("set_tenant", answer))
    }

    /// Pauses or resumes one tenant, and changes nothing else of it.
    pub(super) fn pause_tenant(&mut self, name: &str, is_paused: bool) -> Result<Result<(), Answer>> {
        if is_paused && self.is_global() {
            return Ok(Err(Answer::Refused));
        }
        if !is_paused && !self.store.set_tenants().contains_key(name) {
            return Ok(Ok(()));
        }
        let it = self.tenant_to_set(name)?;
        self.put_tenant(StoredTenant { paused_ms: self.paused_since(is_paused, it.paused_ms), ..it })?;
        Ok(Ok(()))
    }

    /// All messages have one order, so all tenants are one.
    pub(super) fn is_global(&self) -> bool {
        self.dispatcher.lock().window.is_global()
    }

    fn tenant_to_set(&mut self, name: &str) -> Result<StoredTenant> {
        if let Some(known) = self.store.set_tenants().get(name) {
            return Ok(known.clone());
        }
        let number = self.store.tenant(name)?;
        Ok(StoredTenant { number, name: name.into(), settings: Some("{}".into()), paused_ms: None })
    }

    fn paused_since(&self, is_paused: bool, before_ms: Option<i64>) -> Option<i64> {
        is_paused.then(|| before_ms.unwrap_or(self.now_ms))
    }

    fn put_tenant(&mut self, it: StoredTenant) -> Result<()> {
        self.store.put_tenant(&it)?;
        self.changed.push(Changed::Tenant(it));
        Ok(())
    }
}
