//! Checks that were requested inside a try. They are made when the outermost try of the thread has returned (P6).
//!
//! If each were made at once, operations that check each other's keys would be tried in every possible order: n! tries.
//! A check inside a try therefore becomes a request, one for each list. The outermost call of the thread makes the
//! requested checks in rounds (see `rounds`). Requests that are left when that call ends go to the timer (see
//! `postponed_checks`).
//!
//! If only the operation itself requested the check of its own key, it is not tried again: its try has looked already.

use std::collections::HashMap;
use std::mem::ManuallyDrop;

use super::key_list::ListId;

/// The address of a purgatory and one of its lists: identifies the list on this thread.
pub(crate) type ListAddress = (usize, ListId);

/// A request for a check; a `C` makes it.
pub(super) struct CheckRequest<C> {
    pub(super) list: ListAddress,
    /// The operation whose try made the request, by address; `None` if several did.
    pub(super) requested_by: Option<usize>,
    pub(super) check: C,
}

/// Requests in order, one for each list.
pub(super) struct CheckRequests<C> {
    /// The index of each list's request.
    index: HashMap<ListAddress, usize>,
    requests: Vec<CheckRequest<C>>,
}

impl<C> CheckRequests<C> {
    pub(super) fn new() -> Self {
        Self { index: HashMap::new(), requests: Vec::new() }
    }

    pub(super) fn request(&mut self, list: ListAddress, requested_by: Option<usize>, check: impl FnOnce() -> C) {
        let index = *self.index.entry(list).or_insert(self.requests.len());
        match self.requests.get_mut(index) {
            Some(earlier) if earlier.requested_by != requested_by => earlier.requested_by = None,
            Some(_) => {}
            None => self.requests.push(CheckRequest { list, requested_by, check: check() }),
        }
    }

    /// Takes the requests out, and keeps no memory.
    pub(super) fn take(&mut self) -> Vec<CheckRequest<C>> {
        if !self.requests.is_empty() {
            self.index = HashMap::new();
        }
        std::mem::take(&mut self.requests)
    }
}

/// The requests of one outermost call. Most calls have none, so they are behind a pointer.
pub(super) type Requests<C> = Option<Box<CheckRequests<C>>>;

/// The requests made on this thread. It has no destructor, so a thread-local one exists until the thread has ended; and it
/// holds no memory outside of a call.
pub struct RequestedChecks<C> {
    /// The requests of the innermost outermost call: the ending of an operation may make another such call inside.
    current: ManuallyDrop<Requests<C>>,
}

impl<C> Default for RequestedChecks<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> RequestedChecks<C> {
    /// No requests.
    #[must_use]
    pub const fn new() -> Self {
        Self { current: ManuallyDrop::new(None) }
    }

    /// Returns the requests of the call around this one, which [`Self::end_call`] gets back.
    #[must_use]
    pub(super) fn begin_call(&mut self) -> Requests<C> {
        self.current.take()
    }

    /// Returns the requests for which no check was made. The caller leaves them to the timer.
    #[must_use]
    pub(super) fn end_call(&mut self, outer: Requests<C>) -> Vec<CheckRequest<C>> {
        let ended = std::mem::replace(&mut *self.current, outer);
        ended.map_or_else(Vec::new, |ended| ended.requests)
    }

    /// Requests a check from the outermost call.
    pub(super) fn request(&mut self, list: ListAddress, requested_by: Option<usize>, check: impl FnOnce() -> C) {
        let requests = self.current.get_or_insert_with(|| Box::new(CheckRequests::new()));
        requests.request(list, requested_by, check);
    }

    /// The requests for the next round, in order.
    pub(super) fn take(&mut self) -> Vec<CheckRequest<C>> {
        self.current.take().map_or_else(Vec::new, |requests| requests.requests)
    }
}
