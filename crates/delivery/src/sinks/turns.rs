//! Progress of a sink that sends the deliveries of a call one after another (rules D4, D6).
//!
//! The sink asks before each delivery, and the engine may end the turns meanwhile. Then the deliveries that have not
//! begun go to another sender, so they do not wait for a slow delivery. A call ends with the first delivery that did
//! not arrive. So all deliveries before it have arrived, and the counts say everything.
//!
//! ```text
//! begin 0, ended, begin 1, ended, begin 2 ...     deliveries 0 and 1 have arrived, 2 is in hand
//!                                    ^ stop       3 and later are given back; the next `begin` says no
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};

use super::delivery::{Verdict, Verdicts};

const STOPPED: usize = 1 << (usize::BITS - 1);

/// The turns of one call. Only sinks of the crate use it.
#[derive(Debug)]
pub struct Turns {
    count: usize,
    /// How many have begun. [`STOPPED`] is added once no more may begin.
    begun: AtomicUsize,
    /// How many have arrived. Each write is paired with a read in [`Turns::arrived`].
    arrived: AtomicUsize,
}

impl Turns {
    /// Makes the turns for a call with `count` deliveries.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { count, begun: AtomicUsize::new(0), arrived: AtomicUsize::new(0) }
    }

    /// Begins the next delivery, which the sink sends now, and returns its place. `None` if none is left, or the turns
    /// have ended.
    pub fn begin(&self) -> Option<usize> {
        // A number with the flag in it is larger than any count.
        let next = |begun| (begun < self.count).then_some(begun + 1);
        self.begun.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()
    }

    /// Counts the delivery that has begun: it has arrived.
    pub fn ended(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
    }

    /// How many have arrived.
    #[must_use]
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    /// The verdicts of all deliveries. `last`: the verdict of the first delivery that did not arrive, if it was sent.
    #[must_use]
    pub fn verdicts(&self, last: Option<Verdict>) -> Verdicts {
        self.verdicts_from(0, last)
    }

    pub(crate) fn verdicts_from(&self, first: usize, last: Option<Verdict>) -> Verdicts {
        let arrived = self.arrived();
        if arrived == self.count {
            return Verdicts::Delivered;
        }
        let mut verdicts = vec![Verdict::Delivered; arrived - first];
        verdicts.extend(last);
        Verdicts::Each(verdicts)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst) != 0
    }

    /// Lets no more deliveries begin. Returns how many had begun.
    pub(crate) fn stop(&self) -> usize {
        self.begun.fetch_or(STOPPED, Ordering::SeqCst) & !STOPPED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_begins_once_and_those_before_the_last_have_arrived() {
        let turns = Turns::new(3);
        assert!(!turns.has_begun());
        assert_eq!(turns.begin(), Some(0));
        assert!(turns.has_begun());
        turns.ended();
        assert_eq!(turns.begin(), Some(1));
        let refused = Verdict::Refused("no".to_owned());
        let verdicts = turns.verdicts(Some(refused.clone()));
        assert_eq!(verdicts, Verdicts::Each(vec![Verdict::Delivered, refused]));
        turns.ended();
        assert_eq!(turns.begin(), Some(2));
        turns.ended();
        assert_eq!(turns.begin(), None);
        assert_eq!(turns.verdicts(None), Verdicts::Delivered);
    }

    #[test]
    fn none_begins_once_it_is_stopped() {
        let turns = Turns::new(3);
        assert_eq!(turns.begin(), Some(0));
        assert_eq!((turns.stop(), turns.stop()), (1, 1));
        assert_eq!(turns.begin(), None);
        turns.ended();
        assert_eq!(turns.verdicts(None), Verdicts::Each(vec![Verdict::Delivered]));
    }
}
