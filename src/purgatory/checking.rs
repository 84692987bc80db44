//! Checking: operations are tried, one thread at a time, and no event is lost (P3, P6).

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use super::check_requests::{Ask, Asked, Place, Rounds};
use super::in_progress::{self, Tried, Trying};
use super::operation_state::Hold;
use super::watchers::{ListName, Step, Walk};
use super::{Attempt, Cause, Host, Kind, MOST_ROUNDS, MOST_WAITS, Purgatory};
use crate::panics;

/// What came of a check.
pub(super) struct Checked<E> {
    /// This call completed it.
    pub(super) is_won: bool,
    pub(super) failure: Option<E>,
}

/// The operations that a first pass has tried, by address.
type Passed = smallvec::SmallVec<[usize; 8]>;

impl<K: Kind> Purgatory<K> {
    /// Tries every operation that watches the key; how many this call completed (P3).
    ///
    /// Inside a try it is put on the list of the outermost call, and returns 0. That call makes it when its own tries have
    /// returned; it returns how many it completed when it went over the list of its own key.
    pub(crate) fn check_and_complete<H: Host<K>>(self: &Arc<Self>, host: &H, key: &K::Key) -> usize {
        if in_progress::is_inside(host.process()) {
            if let Some(list) = self.watchers.find(host, key) {
                let (place, by) = (self.place_of(list), in_progress::innermost());
                host.asked(|asked| asked.ask(place, by, || host.check_of(self, list)));
            }
            return 0;
        }
        let Some((walk, first)) = self.watchers.walk(host, key) else { return 0 };
        let call = Outermost::begin(host);
        let (mut count, mut tried) = (0, Passed::new());
        self.along(host, walk, first, |op| {
            tried.push(K::life(op).address());
            count += usize::from(self.check_and_report(host, op));
        });
        count + call.make_asked(Some(self.place_of(walk.list)), tried)
    }

    pub(super) fn place_of(self: &Arc<Self>, list: ListName) -> Place {
        (Arc::as_ptr(self) as usize, list)
    }

    /// One pass along a list, for a check that was asked for inside a try; how many it completed.
    pub(crate) fn pass<H: Host<K>>(self: &Arc<Self>, host: &H, list: ListName, rounds: &mut Rounds) -> usize {
        let Some((walk, first)) = self.watchers.walk_again(host, list) else { return 0 };
        let mut count = 0;
        self.along(host, walk, first, |op| {
            if rounds.is_to_try(K::life(op).address()) {
                count += usize::from(self.check_and_report(host, op));
            }
        });
        count
    }

    /// Goes along a list, in steps.
    fn along<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        mut walk: Walk,
        (mut step, mut more): Step<K>,
        mut each: impl FnMut(&K::Op),
    ) {
        loop {
            for (_, op) in step.into_iter().take_while(|_| host.is_here()) {
                each(&op);
                // It may be the last reference, and a destructor is foreign code: what it panics with stops no other try.
                panics::contain(|| drop(op));
            }
            if !more || !host.is_here() {
                return;
            }
            (step, more) = self.watchers.step(host, &mut walk);
        }
    }

    fn check_and_report<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> bool {
        let checked = self.check(host, op, 0);
        if let Some(error) = checked.failure {
            host.report(&self.home, op, error);
        }
        checked.is_won
    }

    /// Checks one operation; and then what that asked for, unless this thread is inside a try.
    pub(super) fn check_one<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) -> Checked<H::Error> {
        if in_progress::is_inside(host.process()) {
            return self.check(host, op, tries);
        }
        let call = Outermost::begin(host);
        let checked = self.check(host, op, tries);
        call.make_asked(None, Passed::from_slice(&[K::life(op).address()]));
        checked
    }

    /// Tries an operation, and again while there are marks; or marks it for the thread that tries it now (P6).
    fn check<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) -> Checked<H::Error> {
        let Some(trying) = Trying::enter(K::life(op).address(), host.process()) else {
            return Checked { is_won: false, failure: None };
        };
        let failure = if self.hold(host, op, tries) { self.try_while_marked(host, op, tries) } else { None };
        let Tried { won, is_inside, owes } = trying.leave();
        if let Some(cause) = won {
            self.end(host, op, cause, is_inside);
        }
        if owes {
            host.end_deferred();
        }
        Checked { is_won: won == Some(Cause::Event), failure }
    }

    /// Whether this thread tries the operation. If not, another thread does so later than this call.
    fn hold<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) -> bool {
        let life = K::life(op);
        for turn in 1..=MOST_WAITS {
            match life.hold_or_mark() {
                Hold::Held => return true,
                Hold::Marked => return false,
                Hold::Last => host.give_way(turn),
            }
        }
        // Its last try takes long. Nothing waits for that: the timer checks again, or if it is shut down, the holder.
        if self.put_off(host, op, tries).is_ok() {
            return false;
        }
        life.hold_or_mark_the_last() == Hold::Held
    }

    /// For the thread that holds the operation. Returns what failed last.
    fn try_while_marked<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) -> Option<H::Error> {
        let life = K::life(op);
        let mut failure = None;
        for round in 0.. {
            let is_last = round >= MOST_ROUNDS;
            if life.is_open() {
                match host.attempt(op) {
                    Attempt::Ran => {}
                    Attempt::Locked => {
                        if let Err(error) = self.put_off(host, op, tries) {
                            // The timer was shut down. The operation goes on waiting, and the next check tries it again.
                            host.report(&self.home, op, error);
                        }
                    }
                    Attempt::Failed(error) => {
                        if let Some(earlier) = failure.replace(error) {
                            host.report(&self.home, op, earlier);
                        }
                    }
                }
            }
            if life.let_go(is_last) {
                break;
            }
            host.give_way(round);
            life.unmark(round + 1 >= MOST_ROUNDS);
        }
        failure
    }

    /// Tells that a try completed the operation; inside another one, once that is over.
    fn end<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, cause: Cause, is_inside: bool) {
        if is_inside {
            in_progress::owes();
            host.defer(op, cause, Some(Arc::clone(self)));
        } else {
            host.end(op, cause, Some(&self.home));
        }
    }
}

/// The outermost call of this thread that tries operations; checks inside its tries are put on its list.
pub(super) struct Outermost<'a, K: Kind, H: Host<K>> {
    host: &'a H,
    /// What is left of this round.
    round: VecDeque<Ask<H::Check>>,
    /// For how many entries of the timer in a row nothing was completed, this call included.
    in_vain: u32,
    kind: PhantomData<fn(K)>,
}

impl<'a, K: Kind, H: Host<K>> Outermost<'a, K, H> {
    pub(super) fn begin(host: &'a H) -> Self {
        host.asked(Asked::begin);
        Self { host, round: VecDeque::new(), in_vain: 0, kind: PhantomData }
    }

    /// Makes the checks on the list, and what they ask for, in rounds. How many operations were completed on the list of
    /// the call's own key. What the rounds end before is left over.
    fn make_asked(mut self, own: Option<Place>, tried: Passed) -> usize {
        let mut asks = self.host.asked(Asked::take);
        if asks.is_empty() {
            return 0;
        }
        let (mut rounds, mut count) = (Rounds::after(tried), 0);
        loop {
            // What waits under its own key too is counted there.
            asks.sort_by_key(|ask| Some(ask.place) != own);
            self.round = asks.into();
            if self.round.is_empty() || !rounds.go_on() || !self.host.is_here() {
                return count;
            }
            count += self.make_round(&mut rounds, own).1;
            asks = self.host.asked(Asked::take);
        }
    }

    /// Makes these checks, and leaves over what they ask for.
    pub(super) fn make_one_round(mut self, checks: VecDeque<Ask<H::Check>>, in_vain: u32) {
        (self.round, self.in_vain) = (checks, in_vain);
        if self.make_round(&mut Rounds::default(), None).0 > 0 {
            self.in_vain = 0;
        }
    }

    /// How many operations were completed, and how many on the list of the call's own key.
    fn make_round(&mut self, rounds: &mut Rounds, own: Option<Place>) -> (usize, usize) {
        let (mut completed, mut count) = (0, 0);
        while let Some(ask) = self.round.pop_front() {
            rounds.begin_pass(ask.by);
            let more = self.host.make(&ask.check, rounds);
            completed += more;
            count += if Some(ask.place) == own { more } else { 0 };
        }
        rounds.end_round(completed);
        (completed, count)
    }
}

/// However the call ends, what it was asked for and has not checked is left to the timer; in a forked child it is the
/// parent's.
impl<K: Kind, H: Host<K>> Drop for Outermost<'_, K, H> {
    fn drop(&mut self) {
        let rest = self.host.asked(Asked::end);
        // Outside of `asked`: a check may be the last that holds a purgatory.
        for ask in self.round.drain(..).chain(rest) {
            if self.host.is_here() {
                self.host.leave_over(&ask.check, ask.by, self.in_vain);
            }
        }
    }
}
