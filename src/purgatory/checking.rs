//! Checking: operations are tried, one thread at a time, and no event is lost (P3, P6).

use std::marker::PhantomData;
use std::sync::Arc;
use std::vec;

use super::check_requests::{CheckRequest, ListAddress, RequestedChecks, Requests};
use super::host::{Host, TryResult};
use super::in_progress::{self, FinishedTry, TryScope};
use super::key_list::{ListId, Step, Walk};
use super::operation_state::{Cause, Hold, OperationKind};
use super::purgatory_core::Purgatory;
use super::rounds::Rounds;
use crate::panics;

/// The number of times that a thread tries a marked operation again. The try after them takes no marks.
pub(super) const MAX_MARKED_TRIES: u32 = if cfg!(tickwheel_model) { 2 } else { 8 };

/// The number of times that a thread yields to another thread in its last try, before it schedules a recheck.
const MAX_YIELDS_TO_LAST_TRY: u32 = if cfg!(tickwheel_model) { 2 } else { 16 };

pub(super) struct CheckResult<E> {
    /// This call completed the operation.
    pub(super) is_completed_by_call: bool,
    pub(super) failure: Option<E>,
}

/// The operations that the first pass along a list has tried, by address.
type TriedOperations = smallvec::SmallVec<[usize; 8]>;

impl<K: OperationKind> Purgatory<K> {
    /// Tries each operation that watches the key; returns how many this call completed (P3).
    ///
    /// Inside a try it only requests the check, and returns 0. The outermost call makes the check when its own tries have
    /// returned. Completions by that check count in the result of the outermost call if both have the same list.
    pub fn check_and_complete<H: Host<K>>(self: &Arc<Self>, host: &H, key: &K::Key) -> usize {
        if in_progress::is_inside_try(host.process()) {
            if let Some(list) = self.watchers.find(host, key) {
                let (address, requested_by) = (self.list_address(list), in_progress::innermost_operation());
                host.requested_checks(|requested| {
                    requested.request(address, requested_by, || host.list_check(self, list));
                });
            }
            return 0;
        }
        let Some((walk, first)) = self.watchers.walk(host, key) else { return 0 };
        let call = OutermostCall::begin(host);
        let (mut count, mut tried) = (0, TriedOperations::new());
        self.for_each_on_list(host, walk, first, |op| {
            tried.push(K::state(op).address());
            count += usize::from(self.check_and_report(host, op));
        });
        count + call.make_requested_checks(Some(self.list_address(walk.list)), tried)
    }

    /// Makes a requested check, in one pass along its list; returns how many operations it completed.
    pub fn check_list<H: Host<K>>(self: &Arc<Self>, host: &H, list: ListId, rounds: &mut Rounds) -> usize {
        let Some((walk, first)) = self.watchers.walk_again(host, list) else { return 0 };
        let mut count = 0;
        self.for_each_on_list(host, walk, first, |op| {
            if rounds.should_try(K::state(op).address()) {
                count += usize::from(self.check_and_report(host, op));
            }
        });
        count
    }

    /// Calls `f` with each operation of a list, in steps, without a lock.
    fn for_each_on_list<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        mut walk: Walk,
        (mut step, mut more): Step<K>,
        mut f: impl FnMut(&K::Op),
    ) {
        loop {
            for (_, op) in step.into_iter().take_while(|_| host.is_same_process()) {
                f(&op);
                // It may be the last reference, and a destructor is foreign code: its panic must not stop the other tries.
                panics::contain(|| drop(op));
            }
            if !more || !host.is_same_process() {
                return;
            }
            (step, more) = self.watchers.step(host, &mut walk);
        }
    }

    fn check_and_report<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> bool {
        let checked = self.check(host, op, 0);
        if let Some(error) = checked.failure {
            host.report(&self.environment, op, error);
        }
        checked.is_completed_by_call
    }

    /// Checks one operation; then, unless this thread is inside a try, makes the checks that it requested.
    pub(super) fn check_one<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        op: &K::Op,
        fruitless_runs: u32,
    ) -> CheckResult<H::Error> {
        if in_progress::is_inside_try(host.process()) {
            return self.check(host, op, fruitless_runs);
        }
        let call = OutermostCall::begin(host);
        let checked = self.check(host, op, fruitless_runs);
        call.make_requested_checks(None, TriedOperations::from_slice(&[K::state(op).address()]));
        checked
    }

    /// Tries an operation, and again while it is marked; or marks it for the thread that tries it now (P6).
    fn check<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, fruitless_runs: u32) -> CheckResult<H::Error> {
        let Some(scope) = TryScope::enter(K::state(op).address(), host.process()) else {
            return CheckResult { is_completed_by_call: false, failure: None };
        };
        let is_held = self.hold(host, op, fruitless_runs);
        let failure = if is_held { self.try_while_marked(host, op, fruitless_runs) } else { None };
        let FinishedTry { completed, is_inside_try, has_deferred_endings } = scope.leave();
        if let Some(cause) = completed {
            self.end(host, op, cause, is_inside_try);
        }
        if has_deferred_endings {
            host.run_deferred_endings();
        }
        CheckResult { is_completed_by_call: completed == Some(Cause::Event), failure }
    }

    /// Whether this thread may try the operation. If not, another thread tries it after this call.
    fn hold<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, fruitless_runs: u32) -> bool {
        let state = K::state(op);
        for turn in 1..=MAX_YIELDS_TO_LAST_TRY {
            match state.hold_or_mark() {
                Hold::Held => return true,
                Hold::Marked => return false,
                Hold::Last => host.yield_to_others(turn),
            }
        }
        // The last try of the other thread is long, and this thread does not wait for it: the timer checks again. If the timer
        // was shut down, the other thread tries again.
        if self.schedule_recheck(host, op, fruitless_runs).is_ok() {
            return false;
        }
        state.hold_or_mark_last_try() == Hold::Held
    }

    /// For the thread that holds the operation. Returns the last failure.
    fn try_while_marked<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, fruitless_runs: u32) -> Option<H::Error> {
        let state = K::state(op);
        let mut failure = None;
        for round in 0.. {
            let is_last = round >= MAX_MARKED_TRIES;
            if state.is_open() {
                match host.call_try_complete(op) {
                    TryResult::Returned => {}
                    TryResult::Locked => {
                        if let Err(error) = self.schedule_recheck(host, op, fruitless_runs) {
                            // The timer was shut down. The operation goes on waiting, and the next check tries it again.
                            host.report(&self.environment, op, error);
                        }
                    }
                    TryResult::Failed(error) => {
                        if let Some(earlier) = failure.replace(error) {
                            host.report(&self.environment, op, earlier);
                        }
                    }
                }
            }
            if state.release(is_last) {
                break;
            }
            host.yield_to_others(round);
            state.clear_mark(round + 1 >= MAX_MARKED_TRIES);
        }
        failure
    }

    /// Runs the ending of an operation that its own try completed; inside another try, defers it.
    fn end<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, cause: Cause, is_inside_try: bool) {
        if is_inside_try {
            in_progress::note_deferred_ending();
            host.defer_ending(op, cause, Some(Arc::clone(self)));
        } else {
            host.run_ending(op, cause, Some(&self.environment));
        }
    }
}

/// The outermost call of this thread that tries operations. It makes the checks that its tries request.
pub(super) struct OutermostCall<'a, K: OperationKind, H: Host<K>> {
    host: &'a H,
    /// The checks of this round that are not made yet.
    round: vec::IntoIter<CheckRequest<H::Check>>,
    /// The requests of the call around this one.
    outer: Requests<H::Check>,
    /// The number of entries of the timer in a row that completed nothing, this call included.
    fruitless_runs: u32,
    kind: PhantomData<fn(K)>,
}

impl<'a, K: OperationKind, H: Host<K>> OutermostCall<'a, K, H> {
    pub(super) fn begin(host: &'a H) -> Self {
        let outer = host.requested_checks(RequestedChecks::begin_call);
        Self { host, round: Vec::new().into_iter(), outer, fruitless_runs: 0, kind: PhantomData }
    }

    /// Makes the requested checks in rounds, also the checks that these request. Returns how many operations were
    /// completed on `own_list`, the list of the call's own key. What the rounds do not reach is left to the timer.
    fn make_requested_checks(mut self, own_list: Option<ListAddress>, tried: TriedOperations) -> usize {
        let mut requests = self.host.requested_checks(RequestedChecks::take);
        if requests.is_empty() {
            return 0;
        }
        let (mut rounds, mut count) = (Rounds::after_first_pass(tried), 0);
        loop {
            // First its own list: an operation that is on other lists too is counted there.
            requests.sort_by_key(|request| Some(request.list) != own_list);
            self.round = requests.into_iter();
            if self.round.as_slice().is_empty() || !rounds.should_continue() || !self.host.is_same_process() {
                return count;
            }
            count += self.make_round(&mut rounds, own_list).1;
            requests = self.host.requested_checks(RequestedChecks::take);
        }
    }

    /// Makes these checks, and leaves to the timer what they request.
    pub(super) fn make_one_round(mut self, checks: Vec<CheckRequest<H::Check>>, fruitless_runs: u32) {
        (self.round, self.fruitless_runs) = (checks.into_iter(), fruitless_runs);
        if self.make_round(&mut Rounds::default(), None).0 > 0 {
            self.fruitless_runs = 0;
        }
    }

    /// Returns how many operations were completed, and how many of them on `own_list`.
    fn make_round(&mut self, rounds: &mut Rounds, own_list: Option<ListAddress>) -> (usize, usize) {
        let (mut completed, mut count) = (0, 0);
        for request in self.round.by_ref() {
            rounds.begin_pass(request.requested_by);
            let more = self.host.run_check(&request.check, rounds);
            completed += more;
            count += if Some(request.list) == own_list { more } else { 0 };
        }
        rounds.end_round(completed);
        (completed, count)
    }
}

/// However the call ends, checks that were requested and not made are left to the timer; but not in a forked child, as they
/// belong to the parent.
impl<K: OperationKind, H: Host<K>> Drop for OutermostCall<'_, K, H> {
    fn drop(&mut self) {
        let outer = self.outer.take();
        let rest = self.host.requested_checks(|requested| requested.end_call(outer));
        if self.round.as_slice().is_empty() && rest.is_empty() {
            return;
        }
        // Outside of `requested_checks`: a check may hold the last reference to a purgatory.
        for request in self.round.by_ref().chain(rest) {
            if self.host.is_same_process() {
                self.host.leave_to_timer(&request.check, request.requested_by, self.fruitless_runs);
            }
        }
    }
}
