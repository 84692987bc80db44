//! Counts waiting messages while the engine works (rules D14, D15).
//!
//! It looks through memory in parts of some thousand places. Between two parts it frees the dispatcher's lock, so
//! senders wait some ten microseconds. A message that moves meanwhile may be counted twice, or not at all.

use super::Engine;
use crate::base::error::DeliveryError;
use crate::due::measures::{CommitMeasures, SendMeasures};
use crate::due::window::{Entry, State, Window};
use crate::store::Census;

/// How many places are looked at under one hold of the lock.
const STEP: usize = 4_096;

/// The open messages in memory and those that will be tried again, by state, and the keys that cannot go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InMemory {
    /// On the timer.
    pub near: u64,
    /// Due, and not being sent: they wait for a sender, for an earlier message of their key, or because the destination
    /// is down.
    pub due: u64,
    pub in_flight: u64,
    /// An attempt failed, and they will be tried again. Some of them are only in the store.
    pub retrying: u64,
    /// Keys whose next message is due and waits for a message in flight.
    pub behind_send: u64,
    /// Keys whose next message is due and waits behind a retry, or is the retry and in the store.
    pub behind_retry: u64,
    /// Keys whose next message is due and waits until an outcome is on disk.
    pub behind_commit: u64,
}

impl InMemory {
    pub fn messages(&self) -> u64 {
        self.near + self.due + self.in_flight + self.retrying
    }

    fn add(&mut self, entry: &Entry, now_ms: i64) {
        match entry.state {
            State::Over => {}
            State::Sending => self.in_flight += 1,
            State::Retrying | State::Parked if entry.attempts > 0 => self.retrying += 1,
            State::Uncommitted | State::Waiting | State::Leaving if entry.due_ms > now_ms => self.near += 1,
            _ => self.due += 1,
        }
    }

    /// If the lane's next message is due, counts the lane by the reason why it waits.
    fn add_lane(&mut self, window: &Window, lane: u32, now_ms: i64) {
        let lane = window.lane(lane);
        let is_due = lane.first().is_some_and(|((due_ms, _), _)| due_ms <= lane.due_until_ms);
        // If the key waits, its messages may be in the store.
        let is_due = is_due || lane.is_waiting && lane.more_from.is_some_and(|(due_ms, _)| due_ms <= now_ms);
        if lane.is_free() || !is_due {
            return;
        }
        match lane.in_flight.map(|slot| window.entry(slot)) {
            None if lane.is_waiting => self.behind_retry += 1,
            None => self.behind_commit += 1,
            Some(first) if matches!(first.state, State::Retrying | State::Parked) && first.attempts > 0 => {
                self.behind_retry += 1;
            }
            Some(_) => self.behind_send += 1,
        }
    }
}

impl Engine {
    /// Messages and bytes in memory.
    #[must_use]
    pub fn in_memory(&self) -> (usize, usize) {
        let dispatcher = self.lock_dispatcher();
        (dispatcher.window.len(), dispatcher.window.bytes())
    }

    /// The first due time of waiting messages, and how many messages are due by each of these times, counted up to
    /// `most`.
    ///
    /// # Errors
    /// The store cannot be read, or is closed.
    pub fn census(&self, until_ms: &[i64], most: u64) -> Result<Census, DeliveryError> {
        let mut counted = Census { first_due_ms: None, due: vec![0; until_ms.len()] };
        self.look_through(|it| {
            if it.is_near && it.state != State::Over {
                counted.add(it.due_ms, until_ms);
            }
        });
        let path = self.ownership.upgrade().ok_or(DeliveryError::Closed)?.path().to_owned();
        counted.add_rows(&path, until_ms, most)?;
        Ok(counted)
    }

    /// Counts the messages in memory by state.
    pub fn states(&self) -> InMemory {
        let now_ms = self.wall.now_us() / 1000;
        let mut found = InMemory::default();
        let mut tried = 0;
        self.look_through(|it| {
            tried += u64::from(it.attempts > 0 && it.state != State::Over);
            found.add(it, now_ms);
        });
        found.retrying += self.queue.lock().tried.saturating_sub(tried);
        let mut next = 0;
        loop {
            let dispatcher = self.lock_dispatcher();
            let lanes = next..dispatcher.window.lane_places().min(next + STEP as u32);
            if lanes.is_empty() {
                return found;
            }
            next = lanes.end;
            lanes.for_each(|lane| found.add_lane(&dispatcher.window, lane, now_ms));
        }
    }

    /// Keys whose last send was not accepted, or was slow; and spare places that are taken.
    pub fn doubts(&self) -> (usize, usize) {
        let tried = self.queue.lock().tried as usize; // each by another key, and some are only in the store
        let dispatcher = self.lock_dispatcher();
        (dispatcher.keys_in_doubt().max(tried), dispatcher.to.iter().map(|it| it.places.spare_taken()).sum())
    }

    /// Measures of the sends.
    pub fn sends(&self) -> SendMeasures {
        self.lock_dispatcher().measures
    }

    /// Measures of the commits.
    pub fn commits(&self) -> CommitMeasures {
        self.queue.lock().commits
    }

    /// How long a group has been on its way to the disk, in microseconds; 0 if there is no such group.
    pub fn commit_running_us(&self) -> u64 {
        let state = self.queue.lock();
        if state.is_busy { self.clock().now_us().saturating_sub(state.busy_since_us) } else { 0 }
    }

    /// Converts a time on the timer's clock to milliseconds since 1970.
    pub fn epoch_ms(&self, timer_us: u64) -> i64 {
        let ago_us = self.clock().now_us().saturating_sub(timer_us) as i64;
        (self.wall.now_us() - ago_us) / 1000
    }

    /// The wall clock, in milliseconds since 1970.
    pub fn wall_ms(&self) -> i64 {
        self.wall.now_us().div_euclid(1000)
    }

    fn look_through(&self, mut see: impl FnMut(&Entry)) {
        self.look_through_window(|_, entry| see(entry));
    }

    pub(super) fn look_through_window(&self, mut see: impl FnMut(&Window, &Entry)) {
        let mut next = Some(0);
        while let Some(from) = next {
            let dispatcher = self.lock_dispatcher();
            let (part, rest) = dispatcher.window.part(from, STEP);
            part.for_each(|entry| see(&dispatcher.window, entry));
            next = rest;
        }
    }
}
