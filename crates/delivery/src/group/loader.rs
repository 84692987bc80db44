//! Loads messages that are due within the horizon from the store into the window (rules D3, D8).
//!
//! The writer calls the loader inside its transaction, so the loader sees messages that were just accepted. It first
//! reads rows without their payloads. The window chooses some of them, and the loader reads only these messages whole.

use crate::base::sync::Mutex;
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

    pub(crate) fn is_started(&self) -> bool {
        self.is_started
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
            let (rows, shares) = (store.may_have_arrived()?, store.shares()?);
            let mut dispatcher = dispatcher.lock();
            for share in shares {
                dispatcher.open_share(share, || store.settings_of(share));
            }
            dispatcher.keep_places(rows);
        }
        let shares = {
            let mut dispatcher = dispatcher.lock();
            dispatcher.window.was_full = false;
            dispatcher.window.shares()
        };
        let mut slots = Vec::new();
        for share in shares.clone() {
            slots.extend(refill(store, dispatcher, share)?);
        }
        let (tried, may_be_more_tried) = read_tried(store, dispatcher)?; // they have waited longest
        slots.extend(tried);
        let mut may_be_more = false;
        for share in shares {
            let (ahead, more) = self.read_ahead(store, dispatcher, share)?;
            slots.extend(ahead);
            may_be_more |= more;
        }
        let loaded: Vec<(Slot, i64)> = {
            let dispatcher = dispatcher.lock();
            let window = &dispatcher.window;
            let may_be_more_tried = may_be_more_tried || window.has_needy_lanes();
            self.is_behind = window.has_leaving() || may_be_more || !window.was_full && may_be_more_tried;
            slots.into_iter().map(|slot| (slot, window.entry(slot).seq)).collect()
        };
        let seqs: Vec<i64> = loaded.iter().map(|(_, seq)| *seq).collect();
        let mut messages = store.bodies(&seqs)?;
        let mut dispatcher = dispatcher.lock();
        for (slot, seq) in &loaded {
            dispatcher.window.entry_mut(*slot).body = messages.remove(seq).map(|it| it.body);
        }
        Ok(loaded)
    }

    /// Reads the next messages of the share, and returns whether there may be more.
    fn read_ahead(&self, store: &mut Store, dispatcher: &Mutex<Dispatcher>, share: u32) -> Result<(Vec<Slot>, bool)> {
        let (id, cursor, until_ms) = {
            let mut dispatcher = dispatcher.lock();
            let until_ms = dispatcher.due_within(self.horizon_ms);
            let window = &mut dispatcher.window;
            let has_room = window.has_room_ahead(share, 0);
            window.was_full |= !has_room;
            match (window.share(share).cursor, until_ms) {
                (Some(cursor), Some(until_ms)) if has_room && cursor.0 <= until_ms => {
                    (window.share(share).id, cursor, until_ms)
                }
                _ => return Ok((Vec::new(), false)),
            }
        };
        let rows: Vec<WaitingRow> = store.plan(id, cursor, until_ms, ROWS)?;
        let is_all = rows.len() < ROWS;
        let mut dispatcher = dispatcher.lock();
        let slots = dispatcher.window.read_ahead(share, &rows, until_ms, is_all);
        Ok((slots, !is_all && dispatcher.window.has_room_ahead(share, 0)))
    }
}

/// Reads messages that left memory until their next attempt. Returns whether there may be more.
fn read_tried(store: &mut Store, dispatcher: &Mutex<Dispatcher>) -> Result<(Vec<Slot>, bool)> {
    let (mut wanted, until_ms, after, mut room) = {
        let mut dispatcher = dispatcher.lock();
        let (wanted, until_ms) = (dispatcher.take_wanted(), dispatcher.reads_tried_until());
        (wanted, until_ms, dispatcher.window.tried_through, dispatcher.room_for_tried(0))
    };
    if std::mem::take(&mut dispatcher.lock().parked.wants_one_early) {
        // The destination is down, and no key without doubt is ready: one message is tried before its time.
        let rows = store.plan_tried(after, i64::MAX, ROWS)?;
        let dispatcher = dispatcher.lock();
        let window = &dispatcher.window;
        let has_left = |row: &&WaitingRow| window.number(row.lane).is_none() && window.find(row.seq).is_none();
        wanted.extend(rows.iter().find(has_left).map(|row| row.seq));
    }
    let mut slots = Vec::new();
    let mut wanted = wanted.into_iter();
    while let Some(seq) = wanted.next() {
        let found = store.find_tried(seq)?;
        let mut dispatcher = dispatcher.lock();
        let Some(row) = found else {
            dispatcher.take_back_parked(seq);
            continue;
        };
        let share = dispatcher.open_share(row.share, || store.settings_of(row.share));
        if room == 0 || !dispatcher.window.has_room(share, row.size as usize) {
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
    for row in &rows {
        dispatcher.lock().open_share(row.share, || store.settings_of(row.share));
    }
    let is_all = rows.len() < ROWS;
    let (chosen, had_room) = dispatcher.lock().window.read_tried(&rows, until_ms, is_all, room);
    // Those that were chosen are not ready before the next send, so `room` would not count them at once.
    let may_be_more = !is_all && had_room && chosen.is_empty() && slots.is_empty();
    slots.extend(chosen);
    if let Some(next_ms) = store.next_tried_ms(until_ms)? {
        dispatcher.lock().expect_tried(next_ms);
    }
    Ok((slots, may_be_more))
}

fn refill(store: &mut Store, dispatcher: &Mutex<Dispatcher>, share: u32) -> Result<Vec<Slot>> {
    let (id, lanes, start, through) = {
        let mut dispatcher = dispatcher.lock();
        let Some((lanes, start)) = dispatcher.window.refill_from(share) else { return Ok(Vec::new()) };
        let it = dispatcher.window.share(share);
        let Some(through) = it.cursor else { return Ok(Vec::new()) };
        (it.id, lanes, start, through)
    };
    let (rows, end) = store.plan_lanes(id, &lanes, start, through, SCAN)?;
    Ok(dispatcher.lock().window.refill(share, &lanes, &rows, start, end))
}
