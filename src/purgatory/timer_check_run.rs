//! A timer's entry that makes checks, when it is due.

use std::sync::Arc;

use super::check_requests::CheckRequest;
use super::checking::OutermostCall;
use super::host::Host;
use super::in_progress;
use super::operation_state::OperationKind;
use super::purgatory_core::Purgatory;
use super::timer_check::{Target, TimerCheck};
use crate::sync::Ordering;

impl<K: OperationKind> TimerCheck<K> {
    /// The entry is due.
    pub fn run<H: Host<K>>(&self, host: &H) {
        let Some(purgatory) = self.purgatory.upgrade() else { return };
        self.has_run.store(true, Ordering::Relaxed);
        let next = self.fruitless_runs.saturating_add(1);
        match &self.target {
            Target::Operation(op) => {
                K::state(op).clear_recheck_scheduled();
                let purgatory = purgatory.current_purgatory(host, op);
                if let Some(error) = purgatory.check_one(host, op, next).failure {
                    host.report(&purgatory.environment, op, error);
                }
            }
            Target::RemainingChecks => {
                purgatory.remaining_checks.clear_scheduled();
                purgatory.make_remaining_checks(host, next);
            }
        }
    }

    /// The entry is due, but the timer's executor refused it: as when the timer refuses it.
    pub fn refuse<H: Host<K>>(&self, host: &H, error: H::Error) {
        let Some(purgatory) = self.purgatory.upgrade() else { return };
        self.has_run.store(true, Ordering::Relaxed);
        match &self.target {
            Target::Operation(op) => {
                K::state(op).clear_recheck_scheduled();
                host.report(&purgatory.environment, op, error);
            }
            Target::RemainingChecks => {
                purgatory.remaining_checks.clear_scheduled();
                purgatory.report_lost_checks(host, error);
            }
        }
    }
}

impl<K: OperationKind> Purgatory<K> {
    /// Makes the remaining checks, in one round. Inside a try the outermost call makes them.
    fn make_remaining_checks<H: Host<K>>(self: &Arc<Self>, host: &H, fruitless_runs: u32) {
        let requests = host.lock(&self.remaining_checks.checks).take();
        let check = |request: &CheckRequest<()>| host.list_check(self, request.list.1);
        if in_progress::is_inside_try(host.process()) {
            for request in requests {
                host.requested_checks(|requested| {
                    requested.request(request.list, request.requested_by, || check(&request));
                });
            }
            return;
        }
        let requests = requests.into_iter().map(|request| CheckRequest {
            list: request.list,
            requested_by: request.requested_by,
            check: check(&request),
        });
        OutermostCall::begin(host).make_one_round(requests.collect(), fruitless_runs);
    }
}
