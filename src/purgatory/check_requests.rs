//! Checks that were asked for inside a try: they are made when the outermost try of the thread has returned (P6).
//!
//! If each were made at once, operations that check each other's keys would be tried in every order there is: n! tries.
//! So a check inside a try is put on a list, each key once, and the outermost call makes the checks of that list in
//! **rounds**: one round makes all checks that were on the list when it began, and tries each operation once at most.
//! What a round's tries ask for goes to the next round.
//!
//! An operation whose own try asked for the check of its key, and no other, is not tried again for that: it looked itself.
//!
//! The rounds end when nothing was asked for. A try may ask every time, though nothing has happened; so they end also
//! when nothing was completed for as many rounds as there are operations in them. A chain of events, in which each
//! operation once makes true what another one waits for, has at most as many links as operations, so the rounds follow it
//! to its end. Of n operations each round makes at most n tries, and each completion is followed by at most n rounds:
//! n * n * n tries. What was asked for and not checked by then is left to the timer (see `later`).

use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;

use smallvec::SmallVec;

use super::watchers::ListName;

/// A list of a purgatory: the purgatory's address and the list.
pub(crate) type Place = (usize, ListName);

/// A check that was asked for; `A` is what makes it.
pub(super) struct Ask<A> {
    pub(super) place: Place,
    /// The operation whose try asked for it, by address; `None` if several did.
    pub(super) by: Option<usize>,
    pub(super) check: A,
}

/// Checks that were asked for, each list once, in the order in which they were.
pub(super) struct Asks<A> {
    /// Where each stands.
    known: HashMap<Place, usize>,
    asks: Vec<Ask<A>>,
}

impl<A> Asks<A> {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), asks: Vec::new() }
    }

    /// Asks for a check, if it is not there.
    pub(super) fn ask(&mut self, place: Place, by: Option<usize>, check: impl FnOnce() -> A) {
        let index = *self.known.entry(place).or_insert(self.asks.len());
        match self.asks.get_mut(index) {
            Some(earlier) if earlier.by != by => earlier.by = None,
            Some(_) => {}
            None => self.asks.push(Ask { place, by, check: check() }),
        }
    }

    /// Takes them out, and keeps no memory.
    pub(super) fn take(&mut self) -> Vec<Ask<A>> {
        if !self.asks.is_empty() {
            self.known = HashMap::new();
        }
        std::mem::take(&mut self.asks)
    }
}

/// The checks that this thread was asked for. It has no destructor, so that a thread-local one is there to the thread's
/// end, and it holds no memory outside of a call.
pub(crate) struct Asked<A> {
    /// One for each outermost call under way; the ending of an operation may make the next inside of it.
    calls: ManuallyDrop<SmallVec<[Asks<A>; 1]>>,
}

impl<A> Asked<A> {
    pub(crate) const fn new() -> Self {
        Self { calls: ManuallyDrop::new(SmallVec::new_const()) }
    }

    pub(super) fn begin(&mut self) {
        self.calls.push(Asks::new());
    }

    /// What was not made is for the caller to leave to the timer.
    #[must_use]
    pub(super) fn end(&mut self) -> Vec<Ask<A>> {
        let call = self.calls.pop();
        if self.calls.is_empty() {
            self.calls.shrink_to_fit();
        }
        call.map_or_else(Vec::new, |call| call.asks)
    }

    /// Asks the outermost call for a check.
    pub(super) fn ask(&mut self, place: Place, by: Option<usize>, check: impl FnOnce() -> A) {
        if let Some(call) = self.calls.last_mut() {
            call.ask(place, by, check);
        }
    }

    /// The checks of the next round, in the order in which they were asked for.
    pub(super) fn take(&mut self) -> Vec<Ask<A>> {
        self.calls.last_mut().map_or_else(Vec::new, Asks::take)
    }
}

/// What the rounds of a call have tried.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Since the last completion, by address.
    tried: HashSet<usize>,
    /// In this round.
    in_this_round: HashSet<usize>,
    without_completion: usize,
    asked_by: Option<usize>,
}

impl Rounds {
    /// After the first pass, which tried these.
    pub(super) fn after(tried: impl IntoIterator<Item = usize>) -> Self {
        Self { tried: tried.into_iter().collect(), ..Self::default() }
    }

    /// Whether there may be links of a chain that were not followed.
    pub(super) fn go_on(&self) -> bool {
        self.without_completion < self.tried.len()
    }

    /// A pass begins, for a check that the try of this operation asked for.
    pub(super) fn begin_pass(&mut self, by: Option<usize>) {
        self.asked_by = by;
    }

    /// Whether that operation is to be tried in this pass. If it is a new one at the address of an earlier one, its own
    /// watching call has tried it since the check was asked for.
    pub(super) fn is_to_try(&mut self, operation: usize) -> bool {
        self.asked_by != Some(operation) && self.in_this_round.insert(operation)
    }

    pub(super) fn end_round(&mut self, completed: usize) {
        let tried = std::mem::take(&mut self.in_this_round);
        if completed > 0 {
            (self.tried, self.without_completion) = (tried, 0);
        } else {
            self.tried.extend(tried);
            self.without_completion += 1;
        }
    }
}
