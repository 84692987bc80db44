//! What the sender knows of one destination, and what it allows it. There may be several such values: nothing here is one
//! for the process.

use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::doubt::{Doubts, Key};
use super::fair_queue::FairQueue;
use super::outage::Outage;
use super::pace::{Pace, Rate};
use super::places::{PlaceLimits, Places};
use super::retry::Retry;
use super::tallies::Tallies;
use crate::base::clock::whole_ms;
use crate::message::named::NamedSettings;
use tickwheel::Handle;

pub(crate) struct Destination {
    pub(super) name: Option<Arc<str>>,
    /// What a message is sent to, if it names a destination.
    pub(super) named: Option<Arc<NamedSettings>>,
    pub(super) is_paused: bool,
    /// Only of one that is to be paused after a time.
    pub(super) failing: Option<Failing>,
    /// How long a send may take, if it is not the usual time.
    pub(super) time_out: Option<Duration>,
    pub(super) queues: Queues,
    /// It is one of [`Dispatcher::turns`](super::dispatcher::Dispatcher).
    pub(super) has_turn: bool,
    pub(crate) places: Places,
    pub(crate) pace: Pace,
    pub(super) doubts: Doubts,
    pub(super) outage: Outage,
    /// It was down when the last process ended.
    pub(crate) was_down: bool,
    pub(super) retry: Retry,
    /// A message is given up after it was due this long while its key had no success. The time of outages does not count.
    pub(super) unanswered_for: Duration,
    pub(super) random: Rng,
    /// The shares of its tenants in memory.
    pub(super) tenants: Vec<u32>,
    /// The shares that are held because of its pause or its pace.
    pub(super) held: Vec<u32>,
    /// Keys that failed together. They are tried at once.
    pub(super) to_wake: Vec<Key>,
}

/// Since when a destination fails, and whether the store knows that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failing {
    pub(super) since_ms: i64,
    pub(super) is_noted: bool,
}

impl Destination {
    pub(super) fn new(retry: Retry, unanswered_for: Duration, seed: u64) -> Self {
        Self {
            name: None,
            named: None,
            is_paused: false,
            failing: None,
            time_out: None,
            queues: Queues::default(),
            has_turn: false,
            places: Places::new(PlaceLimits::NONE),
            pace: Pace::default(),
            doubts: Doubts::default(),
            outage: Outage::default(),
            was_down: false,
            retry,
            unanswered_for,
            random: Rng::with_seed(seed),
            tenants: Vec::new(),
            held: Vec::new(),
            to_wake: Vec::new(),
        }
    }

    /// Another one with the same settings. `id`: its number, so that it draws other waits.
    pub(super) fn like(&self, id: i64) -> Self {
        let seed = self.random.clone().u64(..) ^ Rng::with_seed(id.cast_unsigned()).u64(..);
        Self { places: self.places.like(), ..Self::new(self.retry.clone(), self.unanswered_for, seed) }
    }

    /// Has these settings from now on, which were checked when they were set. `usual`: what they leave out. What is out
    /// keeps its place.
    pub(super) fn set(&mut self, settings: NamedSettings, usual: &Usual, now_us: u64) {
        let PlaceLimits { young, spare, .. } = usual.places;
        let NamedSettings { concurrency, rate, waits_s, .. } = &settings;
        let spare = settings.spare.unwrap_or(if concurrency.is_some() { 0 } else { spare });
        let young = concurrency.map_or(young, |most| most.min(young));
        self.places.set_limits(PlaceLimits { young, spare, ..usual.places });
        if self.named.as_ref().is_none_or(|before| before.rate != *rate) {
            self.pace.set(rate.as_deref().and_then(|rate| Rate::parse(rate).ok()), now_us);
        }
        self.retry = usual.retry.clone();
        if let Some(waits_s) = waits_s {
            self.retry.waits_ms = waits_s.iter().map(|wait| whole_ms(seconds(*wait))).collect();
        }
        self.time_out = settings.sink_timeout_s.map(seconds);
        self.named = Some(Arc::new(settings));
    }

    /// Whether something may be sent there, as soon as there is a message and a place.
    pub(super) fn may_have_turn(&self) -> bool {
        self.pace.may_send() && !self.is_paused && self.outage.may_try()
    }

    /// Whether nothing would be lost if it were forgotten, but the measures. A key that neither waits nor has a message may
    /// be forgotten, as if there were too many.
    pub(super) fn is_idle(&mut self, now_us: u64) -> bool {
        !self.has_turn
            && self.queues.are_empty()
            && self.tenants.is_empty()
            && self.to_wake.is_empty()
            && self.places.are_free()
            && self.pace.is_rested(now_us)
            && !self.outage.is_down()
            && self.failing.as_ref().is_none_or(|it| it.is_noted)
            && !self.doubts.any(|_, doubt| doubt.waits() || doubt.parked.is_some())
    }

    pub(super) fn usual(&self) -> Usual {
        Usual { places: self.places.limits(), retry: self.retry.clone() }
    }

    /// Keeps what does not come from the store, and has no alarm.
    pub(super) fn take_over(&mut self, before: &mut Self) {
        std::mem::swap(&mut self.places, &mut before.places);
        std::mem::swap(&mut self.pace, &mut before.pace);
        self.places.is_older_armed = false;
        self.pace.goes_on();
        self.was_down |= before.outage.down().is_some();
    }
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or_default() // it was checked
}

/// The settings of a destination that says nothing about them.
pub(super) struct Usual {
    places: PlaceLimits,
    pub(super) retry: Retry,
}

/// The state of one share, apart from its destination: which of its messages the loader reads.
#[derive(Debug, Default)]
pub(super) struct ShareWork {
    /// The share of its destination, which has the messages without a tenant.
    pub(super) home: u32,
    /// Its messages that left memory and should be read at once, because their wait is over.
    pub(super) wanted: Vec<i64>,
    /// While its destination is down: one message that left memory should be read before its next attempt.
    pub(super) wants_one_early: bool,
    /// The next time to read messages that left memory, and the alarm for it.
    pub(super) next_tried: Option<(i64, Option<Handle>)>,
}

impl ShareWork {
    pub(super) fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.next_tried.is_none()
    }
}

/// The messages that can be sent there.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// The keys of these messages are not in doubt.
    pub(super) fresh: FairQueue,
    /// Of keys in doubt.
    pub(super) in_doubt: FairQueue,
    /// The last send was of a key in doubt. If both kinds can start, the other kind comes next.
    pub(super) was_in_doubt: bool,
}

impl Queues {
    fn of_home(home: u32) -> Self {
        Self { fresh: FairQueue::of(home), in_doubt: FairQueue::of(home), was_in_doubt: false }
    }

    /// The shares that have messages, held back or not. Some come twice.
    pub(super) fn shares(&self) -> impl Iterator<Item = u32> {
        self.fresh.shares().chain(self.in_doubt.shares())
    }

    pub(super) fn have_some_of(&self, share: u32) -> bool {
        self.fresh.has_some_of(share) || self.in_doubt.has_some_of(share)
    }

    /// The share is not held back any more.
    pub(super) fn release(&mut self, share: u32) {
        self.fresh.release(share);
        self.in_doubt.release(share);
    }

    /// Whether there is a message that is not held back.
    pub(super) fn have_next(&self) -> bool {
        self.fresh.has_next() || self.in_doubt.has_next()
    }

    pub(super) fn are_empty(&self) -> bool {
        self.shares().next().is_none()
    }

    pub(super) fn of(&self, is_in_doubt: bool) -> &FairQueue {
        if is_in_doubt { &self.in_doubt } else { &self.fresh }
    }

    pub(super) fn of_mut(&mut self, is_in_doubt: bool) -> &mut FairQueue {
        if is_in_doubt { &mut self.in_doubt } else { &mut self.fresh }
    }
}

const IN_MEMORY: &str = "it is there as long as a share of it";

/// The destinations, by the number of any of their shares in the window.
pub(crate) struct Destinations {
    /// `None`: it is the share of a tenant, or has left.
    in_memory: Vec<Option<Box<Destination>>>,
    work: Vec<ShareWork>,
    /// How many named ones are in memory.
    pub(super) named: usize,
    /// Of all named ones that had an answer.
    pub(crate) tallies: Tallies,
    /// The one that was looked at last, whether it can leave memory.
    last_looked_at: u32,
}

impl Destinations {
    pub(super) fn new(first: Destination) -> Self {
        Self {
            in_memory: vec![Some(Box::new(first))],
            work: vec![ShareWork::default()],
            named: 0,
            tallies: Tallies::default(),
            last_looked_at: 0,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Destination> {
        self.in_memory.iter().filter_map(Option::as_deref)
    }

    pub(super) fn work(&self, share: u32) -> &ShareWork {
        &self.work[share as usize]
    }

    pub(super) fn work_mut(&mut self, share: u32) -> &mut ShareWork {
        &mut self.work[share as usize]
    }

    /// The share of the destination of this share.
    pub(super) fn home(&self, share: u32) -> u32 {
        self.work(share).home
    }

    /// The shares of the destinations.
    pub(super) fn homes(&self) -> impl Iterator<Item = u32> {
        self.shares().filter(|share| self.in_memory[*share as usize].is_some())
    }

    fn shares(&self) -> std::ops::Range<u32> {
        0..self.in_memory.len() as u32
    }

    /// The destination of this share, which has this number, went down, came up, was paused or goes on.
    pub(super) fn tally_state(&mut self, share: u32, id: i64) {
        let it = self.in_memory[share as usize].as_deref().expect(IN_MEMORY);
        self.tallies.changes(id, it.outage.down().filter(|_| !it.is_paused));
    }

    /// The next one to look at, whether it can leave memory.
    pub(super) fn look_at_next(&mut self) -> u32 {
        self.last_looked_at = (self.last_looked_at + 1) % self.shares().end;
        self.last_looked_at
    }

    pub(super) fn count(&self) -> u32 {
        self.shares().end
    }

    /// A destination comes into memory, in the place of a share that has left.
    pub(super) fn put(&mut self, share: u32, destination: Destination) {
        self.put_share(share, share);
        let destination = Destination { queues: Queues::of_home(share), ..destination };
        self.in_memory[share as usize] = Some(Box::new(destination));
        self.named += 1;
    }

    /// The share of a tenant of this destination comes into memory.
    pub(super) fn put_tenant(&mut self, share: u32, home: u32) {
        self.put_share(share, home);
        self[home].tenants.push(share);
    }

    fn put_share(&mut self, share: u32, home: u32) {
        if share == self.count() {
            self.in_memory.push(None);
            self.work.push(ShareWork::default());
        }
        *self.work_mut(share) = ShareWork { home, ..ShareWork::default() };
    }

    /// The share leaves memory, with its destination if it is the one of it.
    pub(super) fn remove(&mut self, share: u32) {
        let home = self.home(share);
        if home == share {
            self.in_memory[share as usize] = None;
            self.named -= 1;
        } else {
            self[home].tenants.retain(|it| *it != share);
        }
        *self.work_mut(share) = ShareWork::default();
    }
}

impl Index<u32> for Destinations {
    type Output = Destination;

    fn index(&self, share: u32) -> &Destination {
        self.in_memory[self.home(share) as usize].as_deref().expect(IN_MEMORY)
    }
}

impl IndexMut<u32> for Destinations {
    fn index_mut(&mut self, share: u32) -> &mut Destination {
        let home = self.home(share) as usize;
        self.in_memory[home].as_deref_mut().expect(IN_MEMORY)
    }
}
