//! Loads messages that are due within the horizon from the store into the window (rules D3, D8).
//!
//! The writer calls the loader inside its transaction, so the loader sees messages that were just accepted. It first
//! reads rows without their payloads. The window chooses some of them, and the loader reads only these messages whole.

use crate::base::sync::{Mutex, MutexGuard};
use crate::due::dispatcher::Dispatcher;
use crate::due::lanes::Slot;
use crate::store::{Result, Store, WaitingRow};

const ROWS: usize = 2_000;
const SCAN: usize = 5_000;

/// Loads nothing before [`Loader::start`].
#[derive(Debug)]
pub(crate) struct Loader {
    horizon_ms: f64,
    is_started: bool,
    /// It has loaded nothing yet.
    is_new: bool,
    /// Whether there may be more to read at once.
    pub(crate) is_behind: bool,
}

impl Loader {
    pub(crate) fn new(horizon_ms: f64) -> Self {
        Self { horizon_ms, is_started: false, is_new: true, is_behind: false }
    }

    /// From now on [`Loader::load`] reads as far as the horizon.
    pub(crate) fn start(&mut self) {
        self.is_started = true;
        self.is_behind = true;
    }

    /// From now on [`Loader::load`] reads nothing.
    pub(crate) fn stop(&mut self) {
        self.is_started = false;
        self.is_behind = false;
    }

    /// Loads the next messages, at most some thousand. They are in the window, and not on the timer yet.
    pub(crate) fn load(&mut self, store: &mut Store, dispatcher: &Mutex<Dispatcher>) -> Result<Vec<(Slot, i64)>> {
        if !self.is_started {
            return Ok(Vec::new());
        }
        if std::mem::take(&mut self.is_new) {
            let suspects = store.suspects()?;
            lock(dispatcher).keep_places(suspects);
        }
        lock(dispatcher).window.was_full = false;
        let mut slots = refill(store, dispatcher)?;
        let (tried, may_be_more_tried) = read_tried(store, dispatcher)?; // they have waited longest
        slots.extend(tried);
        let (ahead, may_be_more) = self.read_ahead(store, dispatcher)?;
        slots.extend(ahead);
        let loaded: Vec<(Slot, i64)> = {
            let dispatcher = lock(dispatcher);
            let window = &dispatcher.window;
            let may_be_more = may_be_more || may_be_more_tried || window.has_needy_lanes();
            self.is_behind = window.has_leaving() || !window.was_full && may_be_more;
            slots.into_iter().map(|slot| (slot, window.entry(slot).seq)).collect()
        };
        let seqs: Vec<i64> = loaded.iter().map(|(_, seq)| *seq).collect();
        let mut messages = store.bodies(&seqs)?;
        let mut dispatcher = lock(dispatcher);
        for (slot, seq) in &loaded {
            dispatcher.window.entry_mut(*slot).body = messages.remove(seq).map(|it| it.body);
        }
        Ok(loaded)
    }

    /// Reads the next messages, and returns whether there may be more.
    fn read_ahead(&self, store: &mut Store, dispatcher: &Mutex<Dispatcher>) -> Result<(Vec<Slot>, bool)> {
        let (cursor, until_ms) = {
            let mut dispatcher = lock(dispatcher);
            let until_ms = dispatcher.due_within(self.horizon_ms);
            let window = &mut dispatcher.window;
            window.was_full |= !window.has_room_ahead(0);
            match (window.cursor, until_ms) {
                (Some(cursor), Some(until_ms)) if !window.was_full && cursor.0 <= until_ms => (cursor, until_ms),
                _ => return Ok((Vec::new(), false)),
            }
        };
        let rows: Vec<WaitingRow> = store.plan(cursor, until_ms, ROWS)?;
        let is_all = rows.len() < ROWS;
        Ok((lock(dispatcher).window.read_ahead(&rows, until_ms, is_all), !is_all))
    }
}

/// Reads messages that left memory until their next attempt. Returns whether there may be more.
fn read_tried(store: &mut Store, dispatcher: &Mutex<Dispatcher>) -> Result<(Vec<Slot>, bool)> {
    let (wanted, until_ms, after, mut room) = {
        let mut dispatcher = lock(dispatcher);
        let (wanted, until_ms) = (dispatcher.take_wanted(), dispatcher.reads_tried_until());
        (wanted, until_ms, dispatcher.window.tried_through, dispatcher.room_for_tried())
    };
    let mut slots = Vec::new();
    let mut wanted = wanted.into_iter();
    while let Some(seq) = wanted.next() {
        let found = store.find_tried(seq)?;
        let mut dispatcher = lock(dispatcher);
        let Some(row) = found else {
            dispatcher.take_back_parked(seq);
            continue;
        };
        if room == 0 || !dispatcher.window.has_room(row.size as usize) {
            dispatcher.window.was_full |= room > 0;
            dispatcher.want_again([seq].into_iter().chain(wanted));
            break;
        }
        room -= 1;
        let is_wanted = dispatcher.is_wanted(&row);
        // Its wait is over, whatever the store says; but it had one, and keeps its place.
        let row = WaitingRow { next_ms: row.next_ms.map(|it| it.min(dispatcher.steady_ms())), ..row };
        let slot = if is_wanted { dispatcher.window.come_in(&row) } else { None };
        match slot {
            Some(_) => dispatcher.forget_parked(seq),
            None => dispatcher.goes_on_without(seq),
        }
        slots.extend(slot);
    }
    let rows = store.plan_tried(after, until_ms, ROWS)?;
    let is_all = rows.len() < ROWS;
    let (chosen, had_room) = lock(dispatcher).window.read_tried(&rows, until_ms, is_all, room);
    // Those that were chosen are not ready before the next send, so `room` would not count them at once.
    let may_be_more = !is_all && had_room && chosen.is_empty() && slots.is_empty();
    slots.extend(chosen);
    if let Some(next_ms) = store.next_tried_ms(until_ms)? {
        lock(dispatcher).expect_tried(next_ms);
    }
    Ok((slots, may_be_more))
}

fn refill(store: &mut Store, dispatcher: &Mutex<Dispatcher>) -> Result<Vec<Slot>> {
    let (lanes, start, through) = {
        let mut dispatcher = lock(dispatcher);
        let Some((lanes, start)) = dispatcher.window.refill_from() else { return Ok(Vec::new()) };
        let Some(through) = dispatcher.window.cursor else { return Ok(Vec::new()) };
        (lanes, start, through)
    };
    let (rows, end) = store.plan_lanes(&lanes, start, through, SCAN)?;
    Ok(lock(dispatcher).window.refill(&lanes, &rows, start, end))
}

fn lock(dispatcher: &Mutex<Dispatcher>) -> MutexGuard<'_, Dispatcher> {
    dispatcher.lock()
}
