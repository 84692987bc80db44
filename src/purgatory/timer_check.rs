//! What the timer does for a purgatory a little later, so that no event is lost (P6).
//!
//! - A check of an operation is **put off** where it cannot be made now, as another thread holds the operation's own lock
//!   or makes its last try. One at a time is on its way for each operation. The delay is 1 ms, then twice as long each
//!   time, at most 16.
//! - Checks are **left over** where the rounds of a call ended before they were made (see `asked`). One entry on the timer
//!   is on its way for each purgatory. It makes all of them in one round, and leaves over what that round asks for. The
//!   delay is 1 ms, and as long as nothing is completed twice as long each time, at most a second. So n operations whose
//!   tries ask for ever cost n tries a second.
//!
//! The flag that says that one is on its way is cleared before its tries. An event that finds the flag set happened before
//! that, so the tries see it; one that finds it clear puts a check on the timer itself.
//!
//! An entry holds its purgatory weakly: if that is gone, no operation waits in it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::check_requests::{Ask, Asks};
use super::checking::Outermost;
use super::watchers::ListName;
use super::{Host, Kind, Purgatory, in_progress};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// The longest delays, as powers of two of milliseconds.
const LONGEST_PUT_OFF: u32 = 4;
const LONGEST_LEFT_OVER: u32 = 10;

/// An entry on the timer.
pub(crate) struct Later<K: Kind> {
    purgatory: Weak<Purgatory<K>>,
    what: What<K>,
    /// For how many such entries in a row no operation could be tried, or was completed.
    in_vain: u32,
    is_made: AtomicBool,
}

enum What<K: Kind> {
    /// A check of this operation was put off.
    PutOff(K::Op),
    /// Checks were left over, in the purgatory.
    LeftOver,
}

impl<K: Kind> Later<K> {
    pub(super) fn put_off(purgatory: &Arc<Purgatory<K>>, op: K::Op, in_vain: u32) -> Self {
        Self { purgatory: Arc::downgrade(purgatory), what: What::PutOff(op), in_vain, is_made: AtomicBool::new(false) }
    }

    fn left_over(purgatory: &Arc<Purgatory<K>>, in_vain: u32) -> Self {
        Self { purgatory: Arc::downgrade(purgatory), what: What::LeftOver, in_vain, is_made: AtomicBool::new(false) }
    }

    /// How long after it was made up it is due.
    pub(crate) fn delay(&self) -> Duration {
        let ms: u64 = match self.what {
            What::PutOff(_) => 1 << self.in_vain.min(LONGEST_PUT_OFF),
            What::LeftOver => (1 << self.in_vain.min(LONGEST_LEFT_OVER)).min(1000),
        };
        Duration::from_millis(ms)
    }

    /// It is due: makes the checks.
    pub(crate) fn make<H: Host<K>>(&self, host: &H) {
        let Some(purgatory) = self.purgatory.upgrade() else { return };
        self.is_made.store(true, Ordering::Relaxed);
        let next = self.in_vain.saturating_add(1);
        match &self.what {
            What::PutOff(op) => {
                K::life(op).is_put_off_no_more();
                let purgatory = purgatory.where_it_waits(host, op);
                if let Some(error) = purgatory.check_one(host, op, next).failure {
                    host.report(&purgatory.home, op, error);
                }
            }
            What::LeftOver => {
                purgatory.left_over.is_on_its_way_no_more();
                purgatory.make_left_over(host, next);
            }
        }
    }

    /// It is due, but the timer's executor refused it: as where the timer refuses it.
    #[cfg(feature = "python")]
    pub(crate) fn refuse<H: Host<K>>(&self, host: &H, error: H::Error) {
        let Some(purgatory) = self.purgatory.upgrade() else { return };
        self.is_made.store(true, Ordering::Relaxed);
        match &self.what {
            What::PutOff(op) => {
                K::life(op).is_put_off_no_more();
                host.report(&purgatory.home, op, error);
            }
            What::LeftOver => {
                purgatory.left_over.is_on_its_way_no_more();
                purgatory.lose_left_over(host, error);
            }
        }
    }

    /// The operation whose check was put off.
    #[cfg(feature = "python")]
    pub(crate) fn operation(&self) -> Option<&K::Op> {
        match &self.what {
            What::PutOff(op) => Some(op),
            What::LeftOver => None,
        }
    }
}

/// Dropped without having been made, it no longer stands in for others. It takes no lock, as it may be dropped in a forked
/// child.
impl<K: Kind> Drop for Later<K> {
    fn drop(&mut self) {
        if self.is_made.load(Ordering::Relaxed) {
            return;
        }
        match &self.what {
            What::PutOff(op) => K::life(op).is_put_off_no_more(),
            What::LeftOver => {
                if let Some(purgatory) = self.purgatory.upgrade() {
                    purgatory.left_over.is_on_its_way_no_more();
                }
            }
        }
    }
}

/// The checks that were left over in a purgatory.
pub(super) struct LeftOver {
    /// Whether an entry is on the timer for them.
    is_on_its_way: AtomicBool,
    checks: Mutex<Asks<()>>,
}

impl LeftOver {
    pub(super) fn new() -> Self {
        Self { is_on_its_way: AtomicBool::new(false), checks: Mutex::new(Asks::new()) }
    }

    /// A read-modify-write, as for a check that is put off.
    fn is_on_its_way_no_more(&self) {
        self.is_on_its_way.swap(false, Ordering::AcqRel);
    }
}

impl<K: Kind> Purgatory<K> {
    /// The operation cannot be tried now, and nothing waits until it can: it is checked again a little later.
    pub(super) fn put_off<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, in_vain: u32) -> Result<(), H::Error> {
        if K::life(op).is_put_off.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let purgatory = self.where_it_waits(host, op);
        host.add_later(&purgatory.home, Later::put_off(&purgatory, host.share(op), in_vain))
    }

    /// An operation may have been taken out and be watched in another purgatory since. That one's timer makes its checks:
    /// this one's may be shut down.
    fn where_it_waits<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> Arc<Self> {
        host.lock(&K::life(op).watch).purgatory.as_ref().map_or_else(|| Arc::clone(self), Arc::clone)
    }

    /// Leaves the check of a list to the timer. A timer that was shut down refuses; then the next check of the key finds what
    /// this one would have.
    pub(crate) fn leave_over<H: Host<K>>(self: &Arc<Self>, host: &H, list: ListName, by: Option<usize>, in_vain: u32) {
        host.lock(&self.left_over.checks).ask(self.place_of(list), by, || ());
        if self.left_over.is_on_its_way.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = host.add_later(&self.home, Later::left_over(self, in_vain)) {
            self.lose_left_over(host, error);
        }
    }

    /// There is no later: the error is reported, and the operations go on waiting.
    fn lose_left_over<H: Host<K>>(&self, host: &H, error: H::Error) {
        let lost = host.lock(&self.left_over.checks).take();
        // What is reported has an operation: one that would have been tried.
        let waits = |list| self.watchers.walk_again(host, list).and_then(|(_, (step, _))| step.into_iter().next());
        if let Some((_, op)) = lost.into_iter().find_map(|ask| waits(ask.place.1)) {
            host.report(&self.home, &op, error);
        }
    }

    /// Makes the checks that were left over, in one round. Inside a try they are for the outermost call to make.
    fn make_left_over<H: Host<K>>(self: &Arc<Self>, host: &H, in_vain: u32) {
        let checks = host.lock(&self.left_over.checks).take();
        let check = |ask: &Ask<()>| host.check_of(self, ask.place.1);
        if in_progress::is_inside(host.process()) {
            for ask in checks {
                host.asked(|asked| asked.ask(ask.place, ask.by, || check(&ask)));
            }
            return;
        }
        let checks = checks.into_iter().map(|ask| Ask { place: ask.place, by: ask.by, check: check(&ask) });
        Outermost::begin(host).make_one_round(checks.collect(), in_vain);
    }
}
