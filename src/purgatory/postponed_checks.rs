//! Checks that cannot be made now: they are postponed, and put on the timer (P6).

use std::sync::Arc;

use super::host::Host;
use super::key_list::ListId;
use super::operation_state::OperationKind;
use super::purgatory_core::Purgatory;
use super::timer_check::{Target, TimerCheck};
use crate::sync::Ordering;

impl<K: OperationKind> Purgatory<K> {
    /// The operation cannot be tried now, and this thread does not wait: the timer checks it again soon.
    pub(super) fn schedule_recheck<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        op: &K::Op,
        fruitless_runs: u32,
    ) -> Result<(), H::Error> {
        if K::state(op).is_recheck_scheduled.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let purgatory = self.current_purgatory(host, op);
        let check = TimerCheck::new(&purgatory, Target::Operation(host.clone_ref(op)), fruitless_runs);
        host.add_timer_check(&purgatory.environment, check)
    }

    /// The purgatory in which the operation waits now: it may have been taken out and be watched in another one since.
    /// The timer of that purgatory makes the checks, because the timer of this purgatory may be shut down.
    pub(super) fn current_purgatory<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> Arc<Self> {
        host.lock(&K::state(op).watch).purgatory.as_ref().map_or_else(|| Arc::clone(self), Arc::clone)
    }

    /// Leaves the check of a list to the timer. A timer that was shut down refuses the entry. Then the next check of
    /// the key finds the same event.
    pub fn leave_to_timer<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        list: ListId,
        requested_by: Option<usize>,
        fruitless_runs: u32,
    ) {
        host.lock(&self.remaining_checks.checks).request(self.list_address(list), requested_by, || ());
        if self.remaining_checks.is_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let check = TimerCheck::new(self, Target::RemainingChecks, fruitless_runs);
        if let Err(error) = host.add_timer_check(&self.environment, check) {
            self.report_lost_checks(host, error);
        }
    }

    /// The timer makes no more checks: the error is reported, and the operations go on waiting.
    pub(super) fn report_lost_checks<H: Host<K>>(&self, host: &H, error: H::Error) {
        let lost = host.lock(&self.remaining_checks.checks).take();
        // A report names an operation: one that would have been tried.
        let first = |list| self.watchers.walk_again(host, list).and_then(|(_, (step, _))| step.into_iter().next());
        if let Some((_, op)) = lost.into_iter().find_map(|request| first(request.list.1)) {
            host.report(&self.environment, &op, error);
        }
    }
}
