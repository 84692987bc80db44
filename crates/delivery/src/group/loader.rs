//! Loads messages that are due within the horizon from the store into the window (rules D3, D8).
//!
//! The writer calls the loader inside its transaction, so the loader sees messages that were just accepted. It first
//! reads rows without their payloads. The window chooses some of them, and the loader reads only these messages whole.

use crate::base::sync::Mutex;
use crate::due::dispatcher::Dispatcher;
use crate::due::lanes::Slot;
use crate::due::window::Look;
use crate::store::{Result, Store, WaitingRow};

const ROWS: usize = 2_000;
const SCAN: usize = 5_000;
/// How many named destinations come into memory with one load because messages of them are due.
const DUE_AT_ONCE: usize = 64;

/// Loads nothing before [`Loader::start`].
#[derive(Debug)]
pub(crate) struct Loader {
    pub(crate) horizon_ms: f64,
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
            let (rows, tried) = (store.may_have_arrived()?, store.tried_shares()?);
            let mut dispatcher = dispatcher.lock();
            for id in rows.iter().map(|row| row.share).chain(tried) {
                look_at(store, &mut dispatcher, id);
            }
            dispatcher.keep_places(rows);
        }
        let until_ms = dispatcher.lock().due_within(self.horizon_ms);
        let has = |id| dispatcher.lock().window.has_through(id);
        let due = until_ms.map_or(Ok(Vec::new()), |until_ms| store.take_due(until_ms, DUE_AT_ONCE, has))?;
        let are_more_due = until_ms.is_some_and(|until_ms| !store.has_none_due(until_ms));
        let shares = {
            let mut dispatcher = dispatcher.lock();
            for id in due {
                look_at(store, &mut dispatcher, id);
            }
            dispatcher.take_looks()
        };
        let mut slots = Vec::new();
        for share in &shares {
            slots.extend(refill(store, dispatcher, *share)?);
        }
        let mut tried = Vec::with_capacity(shares.len());
        for share in &shares {
            let (read, again) = read_tried(store, dispatcher, *share)?; // they have waited longest
            slots.extend(read);
            tried.push(again);
        }
        let mut may_be_more = Vec::with_capacity(shares.len());
        for share in &shares {
            let (ahead, more) = self.read_ahead(store, dispatcher, *share)?;
            slots.extend(ahead);
            may_be_more.push(more);
        }
        let mut has_all = Vec::new();
        let loaded: Vec<(Slot, i64)> = {
            let mut dispatcher = dispatcher.lock();
            let window = &mut dispatcher.window;
            let has_leaving = window.has_leaving();
            self.is_behind = has_leaving || are_more_due;
            window.has_needy_lanes = false;
            for ((share, tried), more) in shares.into_iter().zip(tried).zip(may_be_more) {
                let it = window.share(share);
                let (id, cursor, is_needy) = (it.id, it.cursor, it.has_needy_lanes());
                let is_part =
                    is_needy || tried != Look::Not || cursor.zip(until_ms).is_none_or(|((due_ms, _), ms)| due_ms < ms);
                let has_more = more || !window.was_full && (is_needy || tried == Look::Next);
                let again = match (has_more || is_part && has_leaving, is_part) {
                    (true, _) => Look::Next,
                    (_, true) => Look::Behind,
                    _ => Look::Not,
                };
                window.has_needy_lanes |= is_needy;
                self.is_behind |= share == 0 && has_more;
                let is_over = window.was_looked_at(share, again);
                has_all.extend(cursor.filter(|_| is_over).map(|cursor| (id, cursor)));
            }
            self.is_behind |= window.has_more_to_look_at();
            slots.into_iter().map(|slot| (slot, window.entry(slot).seq)).collect()
        };
        for (id, cursor) in has_all {
            store.expect_next(id, cursor)?;
        }
        let seqs: Vec<i64> = loaded.iter().map(|(_, seq)| *seq).collect();
        let mut messages = store.bodies(&seqs)?;
        let left = {
            let mut dispatcher = dispatcher.lock();
            for (slot, seq) in &loaded {
                dispatcher.window.entry_mut(*slot).body = messages.remove(seq).map(|it| it.body);
            }
            dispatcher.forget_idle(store.idle_shares())
        };
        for id in left {
            store.forget_cursor(id)?;
        }
        Ok(loaded)
    }

    /// Reads the next messages of the share, and returns whether there may be more.
    fn read_ahead(&self, store: &mut Store, dispatcher: &Mutex<Dispatcher>, share: u32) -> Result<(Vec<Slot>, bool)> {
        let (id, cursor, until_ms, most) = {
            let mut dispatcher = dispatcher.lock();
            let until_ms = dispatcher.due_within(self.horizon_ms);
            let window = &mut dispatcher.window;
            let has_room = window.has_room_ahead(share, 0);
            window.was_full |= !has_room;
            match (window.share(share).cursor, until_ms) {
                (Some(cursor), Some(until_ms)) if has_room && cursor.0 <= until_ms => {
                    (window.share(share).id, cursor, until_ms, ROWS.min(window.free_among_waiting()))
                }
                _ => return Ok((Vec::new(), false)),
            }
        };
        let rows: Vec<WaitingRow> = store.plan(id, cursor, until_ms, most)?;
        let is_all = rows.len() < most;
        let mut dispatcher = dispatcher.lock();
        let slots = dispatcher.window.while_looking(share, |window| window.read_ahead(share, &rows, until_ms, is_all));
        let has_taken_all = rows.last().is_some_and(|row| dispatcher.window.is_read(share, (row.due_ms, row.seq)));
        Ok((slots, !is_all && has_taken_all))
    }
}

/// The loader has to look for messages of this destination.
fn look_at(store: &Store, dispatcher: &mut Dispatcher, id: i64) {
    let share = dispatcher.open_share(id, || store.destination_numbered(id));
    dispatcher.window.look_at(share);
}

/// Reads messages of the share that left memory until their next attempt. Returns when to look for more.
fn read_tried(store: &mut Store, dispatcher: &Mutex<Dispatcher>, share: u32) -> Result<(Vec<Slot>, Look)> {
    let (mut wanted, wants_one_early, until_ms, id, after, mut room) = {
        let mut dispatcher = dispatcher.lock();
        let (wanted, wants_one_early) = (dispatcher.take_wanted(share), dispatcher.wants_one_early(share));
        let (until_ms, it) = (dispatcher.reads_tried_until(), dispatcher.window.share(share));
        (wanted, wants_one_early, until_ms, it.id, it.tried_through, dispatcher.room_for_tried(share))
    };
    if wants_one_early {
        // The destination is down, and no key without doubt is ready: one message is tried before its time.
        let rows = store.plan_tried(id, after, i64::MAX, ROWS)?;
        let dispatcher = dispatcher.lock();
        let window = &dispatcher.window;
        let has_left = |row: &&WaitingRow| window.number(row.lane).is_none() && window.find(row.seq).is_none();
        wanted.extend(rows.iter().find(has_left).map(|row| row.seq));
    }
    let (mut slots, mut again) = (Vec::new(), Look::Not);
    let mut wanted = wanted.into_iter();
    while let Some(seq) = wanted.next() {
        let found = store.find_tried(seq)?;
        let mut dispatcher = dispatcher.lock();
        let Some(row) = found else {
            dispatcher.take_back_parked(id, seq);
            continue;
        };
        if room == 0 || !dispatcher.window.has_room(share, row.size as usize) {
            dispatcher.window.was_full |= room > 0;
            dispatcher.want_again(share, [seq].into_iter().chain(wanted));
            again = Look::Behind;
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
    let rows = store.plan_tried(id, after, until_ms, ROWS)?;
    let is_all = rows.len() < ROWS;
    let (chosen, had_room) = dispatcher.lock().window.read_tried(share, &rows, until_ms, is_all, room);
    // Those that were chosen are not ready before the next send, so `room` would not count them at once.
    if !is_all || !had_room {
        again = if had_room && chosen.is_empty() && slots.is_empty() { Look::Next } else { Look::Behind };
    }
    slots.extend(chosen);
    if let Some(next_ms) = store.next_tried_ms(id, until_ms)? {
        dispatcher.lock().expect_tried(share, next_ms);
    }
    Ok((slots, again))
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
    let mut dispatcher = dispatcher.lock();
    Ok(dispatcher.window.while_looking(share, |window| window.refill(share, &lanes, &rows, start, end)))
}
