//! Outcomes of messages for readers in the program, given out once they are on disk (rules D5, D8).
//!
//! - A reader gets each message that was delivered, given up or expired after the reader was added. They come in the
//!   order of the commits. A cancelled message does not appear, because the cancel has an answer of its own.
//! - A slow reader delays no other work. For each reader, memory keeps at most [`MOST`] outcomes and [`MOST_BYTES`] of
//!   names and reasons. If there are more, the reader loses the oldest outcomes, and learns how many it lost.
//! - Without a reader no outcome is kept. The dispatcher checks for readers before it copies a name.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::base::sync::Mutex;
use crate::message::Body;
use crate::store::{Done, Outcome};

const MOST: usize = 10_000;
const MOST_BYTES: usize = 8 << 20;

/// The outcome of one message.
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
    /// How late it was sent, if it was delivered.
    pub lateness_us: Option<i64>,
    /// How often it was sent.
    pub attempts: u32,
    /// Whether it may have arrived before.
    pub redelivered: bool,
    /// Why it is a dead letter.
    pub reason: Option<Box<str>>,
}

impl Ended {
    /// `reason`: why it is a dead letter. Other outcomes do not keep it.
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

/// The outcomes that one reader has not read.
pub struct OutcomeFeed {
    unread: Mutex<Unread>,
    /// Called when the feed was empty and an outcome is added, and at the end.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Unread {
    outcomes: VecDeque<Arc<Ended>>,
    bytes: usize,
    missed: u64,
    is_over: bool,
}

/// The outcomes of one read.
pub struct Read {
    /// How many outcomes before these were lost.
    pub missed: u64,
    pub outcomes: Vec<Arc<Ended>>,
    /// Whether more can be read now.
    pub has_more: bool,
    /// Whether this was the last read, because no more outcomes will come.
    pub is_over: bool,
}

impl OutcomeFeed {
    /// Makes an empty feed. `wake` is called when an outcome is added to the empty feed, and at the end.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { unread: Mutex::default(), wake: Box::new(wake) }
    }

    /// Takes at most `most` outcomes.
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

/// The readers of one engine. A dropped feed is removed.
#[derive(Debug, Default)]
pub(crate) struct OutcomeFeeds {
    readers: Mutex<Readers>,
    /// Written under the lock, read without it. If the dispatcher reads an old value, a new reader misses an outcome.
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

    /// Gives these outcomes to all readers. The outcomes are on disk.
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

    /// Ends all feeds: no more outcomes will come.
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
