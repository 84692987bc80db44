//! The writer is the only user of the store. It commits queued work in groups (rule D5).
//!
//! ```text
//! submit -> tickets --+                        +--> answers
//! senders -> outcomes +--> one transaction --> +--> the window: new messages in, finished ones out
//! loader (horizon) ---+                        +--> dead letters
//! ```
//!
//! - A ticket is answered after the commit of all its items, in order. A large ticket needs several commits.
//! - A message counts as delivered only after its sink has synced it: `sync` comes before the transaction.
//! - A step has three parts, so that a test can do other things between them: [`Writer::begin`], [`Writer::commit`],
//!   [`Writer::publish`].

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::items::{Item, Ticket};
use super::loader::Loader;
use super::writer_queue::WriterQueue;
use crate::base::error::DeliveryError;
use crate::base::kill_point::kill_point;
use crate::base::summary::Summary;
use crate::base::sync::Mutex;
use crate::base::times::rfc_3339;
use crate::due::dispatcher::{Dead, Dispatcher, Outcomes};
use crate::due::lanes::Slot;
use crate::due::measures::{CommitMeasures, Lateness};
use crate::due::window::State;
use crate::group::running_actions::{Actions, Stepping};
use crate::group::{Changed, Group, held_of, row_of};
use crate::message::Message;
use crate::message::record::record_of;
use crate::sinks::TakesNamed;
use crate::store::replica::Bases;
use crate::store::{
    Action, Attempts, Broken, CRASHED, Checkpoints, Done, Letter, Outcome, Position, Result, STEADY_UNTIL, STOPPING,
    Steps, Store,
};

/// The most items and bytes of one transaction.
const GROUP_ITEMS: usize = 4_096;
const GROUP_BYTES: usize = 8 << 20;
/// How often the writer checks that the store's file is in its place.
const LOOK_EVERY_US: u64 = 1_000_000;
/// Messages that are due within this time may be sent before the next commit.
const LIMIT_AHEAD_MS: f64 = 500.0;
/// The name of the sink's position in the store.
pub(crate) const POSITION: &str = "position";

/// A group that was taken from the queue.
pub(crate) struct Begun {
    parts: Vec<(usize, Vec<Item>)>,
    outcomes: Outcomes,
    position: Option<String>,
    taken_through: Option<i64>,
    was_asked_to_stop: bool,
    /// How far the wall clock was stepped since the start.
    pub(crate) stepped_ms: i64,
}

#[cfg(test)]
impl Begun {
    pub(crate) fn done(&self) -> &[crate::store::Done] {
        &self.outcomes.done
    }
}

impl Begun {
    pub(crate) fn has_outcomes(&self) -> bool {
        !self.outcomes.done.is_empty()
    }

    /// After a failure: what another group has to write, and the letters that the observer has. Notes of sends are made
    /// anew.
    pub(crate) fn kept(self) -> (Outcomes, Option<i64>) {
        (Outcomes { noted: Vec::new(), ..self.outcomes }, self.taken_through)
    }
}

/// A group on disk that the other threads do not know of yet.
pub(crate) struct Committed {
    done: Vec<i64>,
    noted: Vec<(i64, bool)>,
    placed: Vec<(Slot, i64)>,
    sent_until_ms: Option<i64>,
    is_woken: bool,
    resumes: bool,
    resumed_lanes: Vec<i64>,
    changed: Vec<Changed>,
    /// The items for which it had no time, and their bytes.
    left: (usize, usize),
}

/// Owns the store.
pub(crate) struct Writer {
    /// Dropped first, so that the store's connection is the last one, and decides what becomes of the log.
    pub(crate) checkpoints: Option<Checkpoints>,
    /// Of a replicated store.
    pub(crate) bases: Option<Bases>,
    pub(crate) store: Store,
    pub(crate) loader: Loader,
    pub(crate) summary: Summary,
    pub(crate) commits: CommitMeasures,
    pub(crate) lateness: Lateness,
    /// When the writer last checked the store's file, on the timer's clock.
    looked_at_us: u64,
    /// Tickets that were begun; they are answered in this order.
    begun: VecDeque<Ticket>,
    /// The observer is getting the letters up to this number.
    telling_through: Option<i64>,
    /// Messages without an outcome that an earlier process may have sent.
    from_earlier: FxHashSet<i64>,
    /// The steps of the wall clock that the store has, of this process.
    stepped_ms: i64,
    /// The store has it that the process was asked to stop.
    is_stop_noted: bool,
    /// Messages that the last group took back, each with its new number if it goes on. Attempts that are reported later
    /// count for the new number.
    taken_back: FxHashMap<i64, Option<i64>>,
    /// Messages that the last group tried at once, each with the number of its attempts before. If such an attempt is
    /// reported later, it must not make the message wait again.
    tried_now: FxHashMap<i64, u32>,
    actions: Actions,
    /// The reason why the destination is down, as the store has it.
    noted_down: Option<String>,
    /// Whether messages may, or have to, name their destination.
    pub(crate) takes_named: TakesNamed,
}

impl Writer {
    /// `actions`: those of earlier runs that go on.
    pub(crate) fn new(store: Store, horizon_ms: f64, actions: Vec<Action>) -> Self {
        let removed = store.removed_destination().map(|it| it.share);
        let actions = Actions::go_on(actions, store.steps().followed, removed);
        Self {
            checkpoints: None,
            bases: None,
            store,
            loader: Loader::new(horizon_ms),
            summary: Summary::default(),
            commits: CommitMeasures::default(),
            lateness: Lateness::default(),
            looked_at_us: 0,
            begun: VecDeque::new(),
            telling_through: None,
            from_earlier: FxHashSet::default(),
            stepped_ms: 0,
            is_stop_noted: false,
            taken_back: FxHashMap::default(),
            tried_now: FxHashMap::default(),
            actions,
            noted_down: None,
            takes_named: TakesNamed::No,
        }
    }

    /// The destination was asked for all messages that an earlier process may have sent: these did not arrive.
    pub(crate) fn wait_for_earlier(&mut self, seqs: FxHashSet<i64>, queue: &WriterQueue) {
        queue.set_earlier_is_over(seqs.is_empty());
        self.from_earlier = seqs;
    }

    /// Takes the work of one group from the queue: parts of tickets, and outcomes.
    pub(crate) fn begin(&mut self, queue: &WriterQueue) -> Begun {
        let mut state = queue.lock();
        let mut parts = Vec::new();
        let (mut items, mut bytes) = (0, 0);
        let mut place = 0; // what is left of begun tickets comes first
        while items < GROUP_ITEMS && bytes < GROUP_BYTES {
            if place == self.begun.len() {
                let Some(ticket) = state.tickets.pop_front() else { break };
                self.begun.push_back(ticket);
            }
            let ticket = &mut self.begun[place];
            let mut part = Vec::with_capacity(ticket.items.len().min(GROUP_ITEMS - items));
            while items < GROUP_ITEMS
                && bytes < GROUP_BYTES
                && let Some(item) = ticket.items.next()
            {
                items += 1;
                bytes += item.size();
                part.push(item);
            }
            parts.push((place, part));
            if ticket.items.len() > 0 {
                break;
            }
            place += 1;
        }
        queue.take_out(&mut state, items, bytes);
        let outcomes = std::mem::take(&mut state.outcomes);
        queue.note_begun();
        state.is_committing = !outcomes.done.is_empty();
        state.is_busy = !parts.is_empty() || !outcomes.is_empty();
        state.is_woken = false;
        let begun = Begun {
            parts,
            outcomes,
            position: state.position.clone(),
            taken_through: state.taken_through.take(),
            was_asked_to_stop: state.was_asked_to_stop,
            stepped_ms: self.stepped_ms,
        };
        drop(state);
        queue.room.notify_all();
        begun
    }

    /// Stores that these messages of an earlier process have arrived.
    pub(crate) fn note_arrived(&mut self, done: &[Done], dispatcher: &Mutex<Dispatcher>, now_ms: i64) -> Result<()> {
        self.store.begin()?;
        let horizon_ms = self.loader.horizon_ms;
        let mut group = Group::new(&mut self.store, &mut self.actions, dispatcher, now_ms, horizon_ms);
        group.counts.delivered += done.len() as u64;
        group.finish(done)?;
        let Group { counts, letters, .. } = group; // nothing is in memory yet
        self.store.put_letters(&letters, now_ms)?;
        self.summary.add(&counts);
        self.store.commit()
    }

    /// Checks once a second that the store's file is in its place.
    pub(crate) fn look_at_place(&mut self, now_us: u64) -> Result<()> {
        if now_us.saturating_sub(self.looked_at_us) < LOOK_EVERY_US {
            return Ok(());
        }
        self.looked_at_us = now_us;
        self.store.check_place()
    }

    /// Whether the group has no work except the upkeep.
    pub(crate) fn is_idle(&self, begun: &Begun) -> bool {
        let has_work = !begun.parts.is_empty() || !begun.outcomes.is_empty() || begun.stepped_ms != self.stepped_ms;
        !has_work && self.actions.is_empty()
    }

    /// Commits a group. The sinks have already synced the messages that the group calls delivered.
    pub(crate) fn commit(
        &mut self,
        begun: &mut Begun,
        dispatcher: &Mutex<Dispatcher>,
        now_ms: i64,
    ) -> Result<Committed> {
        let result = self.transact(begun, dispatcher, now_ms);
        if result.is_err() {
            let _ = self.store.rollback(); // this value is not used again, and the first error counts
        }
        result
    }

    fn transact(&mut self, begun: &mut Begun, dispatcher: &Mutex<Dispatcher>, now_ms: i64) -> Result<Committed> {
        let is_idle = self.is_idle(begun);
        let Begun { parts, outcomes, position, taken_through, was_asked_to_stop, stepped_ms } = begun;
        kill_point("group: begun");
        self.store.begin()?;
        if let Some(through) = *taken_through {
            self.store.letters_written(through)?;
            self.telling_through = None;
        }
        if *was_asked_to_stop && !std::mem::replace(&mut self.is_stop_noted, true) {
            self.store.put_meta(STOPPING, true)?;
        }
        self.store.note_attempts(&self.attempts_of(&outcomes.attempts))?;
        self.store.note_sends(&outcomes.noted)?;
        if let Some(position) = position.as_ref().filter(|_| !outcomes.done.is_empty()) {
            self.store.put_meta(POSITION, position)?;
        }
        let letters: Vec<Letter> = outcomes.dead.iter().map(letter_of).collect();
        self.store.put_letters(&letters, now_ms)?; // before the items, which may ask for one of these letters
        if *stepped_ms != self.stepped_ms {
            let Steps { count, sum_ms, .. } = self.store.steps();
            let sum_ms = sum_ms + *stepped_ms - self.stepped_ms;
            self.store.put_steps(Steps { count: count + 1, sum_ms, followed: Some(0) })?;
            self.actions.stepping = Some(Stepping::default());
        }
        let horizon_ms = self.loader.horizon_ms;
        let mut group = Group::new(&mut self.store, &mut self.actions, dispatcher, now_ms, horizon_ms);
        group.takes_named = self.takes_named;
        group.finish(&outcomes.done)?;
        group.note_failing(&outcomes.failing)?;
        group.end_pauses()?; // before the items: a pause that is asked for now has an end of its own
        let dead = outcomes.dead.len() as u64;
        group.counts.delivered += outcomes.done.iter().filter(|it| it.outcome == Outcome::Delivered).count() as u64;
        group.counts.dead_letters += dead;
        group.counts.undeliverable += dead;
        group.counts.expired += outcomes.dead.iter().filter(|it| it.outcome == Outcome::Expired).count() as u64;
        let mut left = (0, 0);
        for (place, items) in std::mem::take(parts) {
            let Ticket { answers, items: others, .. } = &mut self.begun[place];
            let rest = group.apply(items, answers)?;
            left.0 += rest.len();
            left.1 += rest.as_slice().iter().map(Item::size).sum::<usize>();
            if rest.len() > 0 {
                *others = rest.chain(std::mem::take(others)).collect::<Vec<_>>().into_iter();
            }
        }
        group.act()?;
        if self.loader.is_started() {
            group.bury()?; // before the start, nothing says where dead letters go
        }
        group.follow_step()?;
        let Group {
            counts,
            letters,
            admitted,
            first_due_ms,
            taken_back,
            tried_now,
            resumes,
            resumed_lanes,
            changed,
            ..
        } = group;
        self.taken_back = taken_back.iter().copied().collect();
        self.tried_now = tried_now.into_iter().collect();
        for (seq, goes_on) in &taken_back {
            if let Some(goes_on) = goes_on.filter(|_| self.from_earlier.contains(seq)) {
                self.from_earlier.insert(goes_on);
            }
        }
        self.store.put_letters(&letters, now_ms)?;
        self.hold_leaving(dispatcher)?;
        let mut placed = self.loader.load(&mut self.store, dispatcher)?;
        placed.extend(admitted);
        let sent_until_ms = self.note_send_limit(dispatcher, first_due_ms, &placed)?;
        let more = self.store.upkeep(is_idle)?;
        self.note_state(dispatcher, is_idle, now_ms)?;
        if dispatcher.is_poisoned() {
            return Err(Broken::PANICKED); // a thread panicked while it changed the window
        }
        self.store.commit()?;
        self.stepped_ms = *stepped_ms;
        if let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| !is_idle) {
            checkpoints.after_commit(&self.store);
        }
        if !is_idle {
            self.commits.last_ms = now_ms;
        }
        self.summary.add(&counts);
        for done in &outcomes.done {
            if let Some(lateness_us) = done.lateness_us {
                self.commits.lateness.add(lateness_us);
                self.lateness.add(lateness_us);
            }
        }
        let done = outcomes.done.iter().map(|it| it.seq).chain(taken_back.into_iter().map(|(seq, _)| seq)).collect();
        let Outcomes { noted, .. } = std::mem::take(outcomes);
        let is_woken = more || self.loader.is_behind || !resumed_lanes.is_empty() || self.actions.has_more();
        Ok(Committed { done, noted, placed, sent_until_ms, is_woken, resumes, resumed_lanes, changed, left })
    }

    /// Notes the state for other processes that look at the store.
    fn note_state(&mut self, dispatcher: &Mutex<Dispatcher>, is_idle: bool, now_ms: i64) -> Result<()> {
        if !is_idle {
            self.store.put_meta("committed_ms", now_ms)?;
            self.store.count_commit()?;
        }
        let down = dispatcher.lock().down().map(|(_, reason)| reason.to_owned());
        if self.noted_down != down {
            self.store.put_meta("down_since_ms", down.is_some().then_some(now_ms))?;
            self.store.put_meta("down_reason", &down)?;
            self.noted_down = down;
        }
        Ok(())
    }

    /// Leaves out the attempts of messages that were taken back meanwhile. If such a message goes on under a new
    /// number, its attempts go there.
    fn attempts_of(&self, attempts: &[Attempts]) -> Vec<Attempts> {
        let mut kept = Vec::with_capacity(attempts.len());
        for mut it in attempts.iter().cloned() {
            if self.tried_now.get(&it.seq) == Some(&it.attempts) {
                it.next_ms = it.next_ms.min(Some(it.at_ms));
            }
            let mut goes_on = Some(it.seq);
            while let Some(next) = goes_on.and_then(|seq| self.taken_back.get(&seq)) {
                it.next_ms = None;
                goes_on = *next; // this number may have been taken back in the same group too
            }
            if let Some(seq) = goes_on {
                kept.push(Attempts { seq, ..it });
            }
        }
        kept
    }

    /// Near messages that lose their place in memory, or that stay for long, get a row in the store.
    fn hold_leaving(&mut self, dispatcher: &Mutex<Dispatcher>) -> Result<()> {
        let stragglers = self.store.stragglers();
        let mut dispatcher = dispatcher.lock();
        let mut held: Vec<_> = dispatcher.window.take_leaving().iter().map(held_of).collect();
        held.extend(dispatcher.take_parked().iter().filter_map(|it| it.gone.as_ref()).map(held_of));
        for seq in stragglers {
            let Some(slot) = dispatcher.window.find(seq) else { continue };
            let entry = dispatcher.window.entry(slot);
            if !entry.is_near || entry.state == State::Over {
                continue; // its outcome comes with a later group
            }
            // One that is sent later is covered by the limit, or `take_uncovered` has it.
            held.push(row_of(entry, entry.redelivered || entry.was_sent));
            dispatcher.window.hold_near(slot);
        }
        drop(dispatcher);
        self.store.hold(&held)
    }

    /// Notes in the store which messages may be sent before the next commit.
    fn note_send_limit(
        &mut self,
        dispatcher: &Mutex<Dispatcher>,
        first_due_ms: Option<i64>,
        placed: &[(Slot, i64)],
    ) -> Result<Option<i64>> {
        let mut dispatcher = dispatcher.lock();
        let Some(soon_ms) = dispatcher.due_within(LIMIT_AHEAD_MS) else { return Ok(None) };
        let loaded = placed.iter().filter_map(|(slot, seq)| dispatcher.window.get(*slot, *seq));
        let loaded_ms = loaded.map(|entry| entry.due_ms).min();
        let first_ms = [dispatcher.first_due_ms(), first_due_ms, loaded_ms].into_iter().flatten().min();
        let first_ms = first_ms.map_or(i64::MIN, |first_ms| first_ms.saturating_add(LIMIT_AHEAD_MS as i64));
        // Senders use the earlier limit until this one is on disk, so it never goes back.
        let until_ms = soon_ms.max(first_ms).max(dispatcher.limit.until_ms);
        let cursors = dispatcher.window.take_moved_cursors();
        let changed: Vec<_> = dispatcher.window.take_changed_lanes().collect();
        let uncovered = dispatcher.window.take_uncovered();
        let is_in_memory = |(_, seq): &&Position| dispatcher.window.find(*seq).is_some();
        let may_be_sent: Vec<_> = uncovered.iter().filter(is_in_memory).copied().collect();
        let steady_until_ms = dispatcher.steady_ms().saturating_add(LIMIT_AHEAD_MS as i64);
        drop(dispatcher);
        self.store.note_may_have_arrived(&uncovered)?;
        self.store.note_uncovered(&may_be_sent)?;
        self.store.put_meta(STEADY_UNTIL, steady_until_ms)?;
        self.store.note_send_limit(Some(until_ms), &cursors, &changed)?;
        Ok(Some(until_ms))
    }

    /// Publishes a group on disk: messages go on the timer, and tickets get their answers. Returns whether there is
    /// more to do.
    pub(crate) fn publish(
        &mut self,
        committed: &Committed,
        queue: &WriterQueue,
        dispatcher: &Mutex<Dispatcher>,
    ) -> Result<bool> {
        kill_point("group: committed");
        queue.note_committed();
        if !self.from_earlier.is_empty() {
            for seq in &committed.done {
                self.from_earlier.remove(seq);
            }
            queue.set_earlier_is_over(self.from_earlier.is_empty());
        }
        let mut has_more_room = !committed.changed.is_empty(); // for what may be sent again
        let mut done = committed.done.as_slice();
        let mut placed = committed.placed.as_slice();
        loop {
            let mut dispatcher = dispatcher.lock();
            let (now, later) = done.split_at(done.len().min(1_024));
            dispatcher.forget(now.iter().copied());
            has_more_room |= dispatcher.window.was_full && !now.is_empty();
            done = later;
            let (now, later) = placed.split_at(placed.len().min(512));
            dispatcher.place(now.iter().copied());
            placed = later;
            if done.is_empty() && placed.is_empty() {
                dispatcher.window.rows_are_committed();
                dispatcher.are_noted(&committed.noted);
                if committed.resumes {
                    dispatcher.pause(false);
                }
                for it in &committed.changed {
                    match it {
                        Changed::Destination(it) => dispatcher.set_destination(it),
                        Changed::Tenant(it) => dispatcher.set_tenant(it),
                    }
                }
                for lane in &committed.resumed_lanes {
                    dispatcher.resume_key(*lane);
                }
                if let Some(until_ms) = committed.sent_until_ms {
                    dispatcher.limit.until_ms = until_ms;
                    dispatcher.limit.is_wanted = false;
                }
                break;
            }
        }
        kill_point("group: placed");
        let letters = self.read_letters();
        let mut answered = Vec::new();
        while self.begun.front().is_some_and(|ticket| ticket.items.len() == 0) {
            answered.extend(self.begun.pop_front());
        }
        let more = {
            let mut state = queue.lock();
            queue.put_back(&mut state, committed.left);
            state.open = self.store.open_count();
            state.tried = self.store.tried_count();
            state.recurring = self.store.recurring_count();
            state.pause_ends_ms = self.store.first_pause_end_ms();
            state.summary = self.summary;
            state.commits = self.commits;
            state.groups_in_all = self.store.commits();
            state.is_committing = false;
            state.is_busy = false;
            if let Ok(Some(letters)) = &letters {
                state.letters = Some(letters.clone());
            }
            state.has_letters = self.store.has_unwritten_letters();
            state.is_woken |= committed.is_woken || has_more_room || !self.begun.is_empty();
            state.is_woken || !state.tickets.is_empty()
        };
        queue.emptied.notify_all();
        kill_point("group: answering");
        for ticket in answered {
            (ticket.complete)(Ok(ticket.answers));
        }
        letters.map(|_| more) // everything else is published, also if they can't be read
    }

    /// Goes on with the store that was opened anew: what memory had of it is on disk, or was refused.
    pub(crate) fn go_on_with(&mut self, store: Store, horizon_ms: f64, actions: Vec<Action>) {
        let removed = store.removed_destination().map(|it| it.share);
        self.actions = Actions::go_on(actions, store.steps().followed, removed);
        self.store = store;
        self.loader = Loader::new(horizon_ms);
        self.taken_back.clear();
        self.tried_now.clear();
        (self.is_stop_noted, self.noted_down) = (false, None);
    }

    /// Writes the last transaction. Messages that were sent without an outcome may have arrived, so they are marked. If
    /// these are known, no other message counts as sent. `late`: outcomes that no group has.
    pub(crate) fn end(&mut self, dispatcher: &Dispatcher, late: &Outcomes, sends: Sends) -> Result<()> {
        let (mut near, mut others) = (Vec::new(), Vec::new());
        let mut are_known = sends != Sends::Unknown;
        for (_, it) in dispatcher.window.slots() {
            if it.state == State::Over {
                are_known = false; // an answer that came too late for a commit
                continue;
            }
            if !it.was_sent {
                continue;
            }
            if it.is_near {
                near.push(row_of(it, true));
            } else {
                others.push(it.position());
            }
        }
        others.extend(dispatcher.window.sent_and_left());
        self.store.begin()?;
        self.store.note_attempts(&self.attempts_of(&late.attempts))?;
        self.store.forget_sends()?; // this end is no message's fault
        self.store.hold(&near)?;
        self.store.note_may_have_arrived(&others)?;
        if are_known {
            self.store.note_send_limit(None, &[], &[])?;
        } else {
            self.store.put_meta(STOPPING, true)?;
        }
        self.store.commit()
    }

    /// Gives the error to begun tickets that get no answer any more.
    pub(crate) fn give_up(&mut self, error: &DeliveryError) {
        for ticket in self.begun.drain(..) {
            (ticket.complete)(Err(error.clone()));
        }
    }

    /// Whether every ticket has its answer, and the observer has every letter on disk. With `leaves_letters`, letters
    /// may stay for the next run.
    pub(crate) fn is_finished(&self, queue: &WriterQueue, leaves_letters: bool) -> bool {
        let state = queue.lock();
        let is_told = leaves_letters || !self.store.has_unwritten_letters();
        is_told && self.begun.is_empty() && state.tickets.is_empty() && state.outcomes.is_empty()
    }

    fn read_letters(&mut self) -> Result<Option<(Vec<Letter>, i64)>> {
        if !self.store.has_unwritten_letters() || self.telling_through.is_some() {
            return Ok(None);
        }
        let (letters, through) = self.store.unwritten_letters()?;
        self.telling_through = Some(through);
        Ok(Some((letters, through)))
    }
}

/// What is known of the sends when an engine closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sends {
    /// All have ended.
    AllEnded,
    /// Some hang.
    SomeHang,
    /// Nothing: the process dies, or the writer hangs.
    Unknown,
}

/// Makes the dead letter of a message that was given up or has expired.
fn letter_of(dead: &Dead) -> Letter {
    let message = Message { body: dead.body.clone(), due_ms: dead.due_ms, delay_ms: None };
    let attempts = format!("{} {}", dead.attempts, if dead.attempts == 1 { "attempt" } else { "attempts" });
    let (reason, allowed) = if dead.outcome == Outcome::Expired {
        let expired_at = rfc_3339(message.expires_ms().unwrap_or(dead.due_ms));
        let reason = format!("expired at {} after {attempts}", String::from_utf8_lossy(&expired_at));
        (reason, "give the record again, with a later expires or without one")
    } else {
        // A send that ends the process is no attempt.
        let after = if dead.reason == CRASHED { String::new() } else { format!(" after {attempts}") };
        let reason = format!("gave up{after}: {}", dead.reason);
        (reason, "requeue it once the reason is gone, if its store is kept; or correct the record, and give it again")
    };
    let (source, allowed) = ("delivery".to_owned(), allowed.to_owned());
    Letter { source, line: dead.seq, reason, allowed, record: record_of(&message) }
}
