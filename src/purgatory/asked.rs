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
//! operation once makes true what another one waits for, has at most as many links as operations, so none is lost. Of n
//! operations each round makes at most n tries, and each completion is followed by at most n rounds: n * n * n tries.

use std::collections::{HashMap, HashSet};

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

/// The checks that this thread was asked for.
pub(crate) struct Asked<A> {
    /// One for each outermost call under way; the ending of an operation may make the next inside of it.
    calls: Vec<Call<A>>,
}

struct Call<A> {
    /// Where each stands.
    known: HashMap<Place, usize>,
    asks: Vec<Ask<A>>,
}

impl<A> Asked<A> {
    pub(crate) const fn new() -> Self {
        Self { calls: Vec::new() }
    }

    pub(super) fn begin(&mut self) {
        self.calls.push(Call { known: HashMap::new(), asks: Vec::new() });
    }

    /// What was not made is for the caller to drop.
    #[must_use]
    pub(super) fn end(&mut self) -> Vec<Ask<A>> {
        self.calls.pop().map_or_else(Vec::new, |call| call.asks)
    }

    /// Asks for a check, if it is not on the list.
    pub(super) fn ask(&mut self, place: Place, by: Option<usize>, check: impl FnOnce() -> A) {
        let Some(Call { known, asks }) = self.calls.last_mut() else { return };
        let index = *known.entry(place).or_insert(asks.len());
        match asks.get_mut(index) {
            Some(earlier) if earlier.by != by => earlier.by = None,
            Some(_) => {}
            None => asks.push(Ask { place, by, check: check() }),
        }
    }

    /// The checks of the next round, in the order in which they were asked for.
    pub(super) fn take(&mut self) -> Vec<Ask<A>> {
        let Some(Call { known, asks }) = self.calls.last_mut() else { return Vec::new() };
        if !asks.is_empty() {
            known.clear();
        }
        std::mem::take(asks)
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
