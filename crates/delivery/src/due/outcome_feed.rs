//! What became of messages, told to readers in the program once it is on disk (rules D5, D8).
//!
//! - A reader is told of messages that were delivered, given up or expired after it began to read, in order of the commits.
//!   A cancel is told by its answer alone.
//! - A reader that is slow holds up nothing. It has at most [`MOST`] outcomes and [`MOST_BYTES`] of names and reasons in memory;
//!   past that it loses the oldest, and is told how many.
//! - Without a reader nothing is kept: the dispatcher asks before it copies a name.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::base::sync::Mutex;
use crate::message::Body;
use crate::store::{Done, Outcome};

const MOST: usize = 10_000;
const MOST_BYTES: usize = 8 << 20;

/// What became of one message.
#[derive(Debug)]
pub struct Ended {
    /// The key of the message.
    pub key: Option<Box<str>>,
    /// The id of the message.
    pub id: Box<str>,
    /// Its due time, in milliseconds since 1970.
    pub due_ms: i64,
    /// `Delivered`, `Dead` or `Expired`.
    pub outcome: Outcome,
    /// When the outcome was decided, in milliseconds since 1970.
    pub at_ms: i64,
    /// How late it was sent, if it was.
    pub lateness_us: Option<i64>,
    /// How often it was sent.
    pub attempts: u32,
    /// Whether it may have been sent before.
    pub redelivered: bool,
    /// Why it is dead.
    pub reason: Option<Box<str>>,
}

impl Ended {
    /// `reason`: of one that is dead.
    pub(crate) fn of(done: &Done, body: &Body, reason: Option<&str>) -> Self {
        Self {
            key: body.key().map(Into::into),
            id: body.id().into(),
            due_ms: done.due_ms,
            outcome: done.outcome,
            at_ms: done.at_ms,
            lateness_us: done.lateness_us,
            attempts: done.attempts,
            redelivered: done.redelivered,
            reason: reason.filter(|_| done.outcome == Outcome::Dead).map(Into::into),
        }
    }

    fn bytes(&self) -> usize {
        self.id.len() + [&self.key, &self.reason].into_iter().flatten().map(|text| text.len()).sum::<usize>()
    }
}

/// What one reader has not read yet.
pub struct OutcomeFeed {
    unread: Mutex<Unread>,
    /// Called by the writer when there is something to read where there was nothing, or at the end.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Unread {
    outcomes: VecDeque<Arc<Ended>>,
    bytes: usize,
    missed: u64,
    is_over: bool,
}

/// What was read at once.
pub struct Read {
    /// How many came before these, and were lost.
    pub missed: u64,
    pub outcomes: Vec<Arc<Ended>>,
    /// Whether there are more now.
    pub has_more: bool,
    /// Whether no more will come.
    pub is_over: bool,
}

impl OutcomeFeed {
    /// An empty feed; `wake` is called when the first outcome comes.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { unread: Mutex::default(), wake: Box::new(wake) }
    }

    /// At most so many.
    pub fn read(&self, most: usize) -> Read {
        let mut unread = self.unread.lock();
        let count = most.min(unread.outcomes.len());
        let outcomes: Vec<_> = unread.outcomes.drain(..count).collect();
        unread.bytes -= outcomes.iter().map(|it| it.bytes()).sum::<usize>();
        let has_more = !unread.outcomes.is_empty();
        Read { missed: std::mem::take(&mut unread.missed), outcomes, has_more, is_over: unread.is_over && !has_more }
    }

    fn add(&self, ended: &[Arc<Ended>]) {
        let mut unread = self.unread.lock();
        let was_empty = unread.outcomes.is_empty();
        for one in ended {
            unread.bytes += one.bytes();
            unread.outcomes.push_back(one.clone());
            while unread.outcomes.len() > MOST || (unread.bytes > MOST_BYTES && unread.outcomes.len() > 1) {
                let lost = unread.outcomes.pop_front().expect("there is one");
                unread.bytes -= lost.bytes();
                unread.missed += 1;
            }
        }
        drop(unread);
        if was_empty {
            (self.wake)();
        }
    }

    fn end(&self) {
        self.unread.lock().is_over = true;
        (self.wake)();
    }
}

impl fmt::Debug for OutcomeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeFeed").finish_non_exhaustive()
    }
}

/// The readers of one engine. One that is dropped is no reader any more.
#[derive(Debug, Default)]
pub(crate) struct OutcomeFeeds {
    readers: Mutex<Readers>,
    /// Written with the lock. A dispatcher that reads it too early tells a new reader one outcome fewer.
    has_any: AtomicBool,
}

#[derive(Debug, Default)]
struct Readers {
    feeds: Vec<Weak<OutcomeFeed>>,
    is_over: bool,
}

impl OutcomeFeeds {
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, feed: &Arc<OutcomeFeed>) {
        let mut readers = self.readers.lock();
        if readers.is_over {
            drop(readers);
            feed.end();
            return;
        }
        readers.feeds.push(Arc::downgrade(feed));
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// These are on disk.
    pub(crate) fn tell(&self, ended: &[Arc<Ended>]) {
        if ended.is_empty() {
            return;
        }
        let feeds = {
            let mut readers = self.readers.lock();
            readers.feeds.retain(|feed| feed.strong_count() > 0);
            self.has_any.store(!readers.feeds.is_empty(), Ordering::Relaxed);
            readers.feeds.clone()
        };
        for feed in feeds.iter().filter_map(Weak::upgrade) {
            feed.add(ended);
        }
    }

    /// No more will come.
    pub(crate) fn end(&self) {
        let feeds = {
            let mut readers = self.readers.lock();
            readers.is_over = true;
            self.has_any.store(false, Ordering::Relaxed);
            std::mem::take(&mut readers.feeds)
        };
        for feed in feeds.iter().filter_map(Weak::upgrade) {
            feed.end();
        }
    }
}

#[cfg(test)]
mod tests;
