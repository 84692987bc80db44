//! What one transaction does for what was submitted; and what has to follow once it is committed.

#![forbid(unsafe_code)]

use super::dispatcher::{Dispatcher, TakenBack};
use super::error::{BadRecord, StoreError};
use super::incoming::{Incoming, lane_of};
use super::items::{Answer, Item};
use super::lanes::Slot;
use super::message::{Body, Cancel, Reschedule};
use super::sinks::line::record_of_incoming;
use super::store::{Accepted, Attempts, Done, Held, Known, Letter, Outcome, PAUSED, Store, Waiting};
use super::summary::Summary;
use super::window::{Gone, State};
use crate::sync::PlainMutex;

const DAY_MS: i64 = 86_400_000;
/// Messages that come into memory under one hold of the dispatcher's lock: senders wait meanwhile.
const ADMIT: usize = 256;

/// Made for one transaction, and used inside it.
pub(super) struct Group<'a> {
    pub(super) counts: Summary,
    pub(super) letters: Vec<Letter>,
    /// In memory, to be placed on the timer after the commit.
    pub(super) admitted: Vec<(Slot, i64)>,
    pub(super) first_due_ms: Option<i64>,
    /// Cancelled or moved, to be forgotten after the commit; and the number under which it goes on.
    pub(super) taken_back: Vec<(i64, Option<i64>)>,
    /// Sending goes on after the commit.
    pub(super) resumes: bool,
    store: &'a mut Store,
    dispatcher: &'a PlainMutex<Dispatcher>,
    now_ms: i64,
}

impl<'a> Group<'a> {
    pub(super) fn new(store: &'a mut Store, dispatcher: &'a PlainMutex<Dispatcher>, now_ms: i64) -> Self {
        Self {
            counts: Summary::default(),
            letters: Vec::new(),
            admitted: Vec::new(),
            first_due_ms: None,
            taken_back: Vec::new(),
            resumes: false,
            store,
            dispatcher,
            now_ms,
        }
    }

    /// Does what a ticket asks for, in order; messages that follow each other at once.
    pub(super) fn apply(&mut self, items: Vec<Item>, answers: &mut Vec<Answer>) -> Result<(), StoreError> {
        let mut puts = Vec::new();
        for item in items {
            match item {
                Item::Put(incoming) => {
                    puts.push(incoming);
                    continue;
                }
                _ if !puts.is_empty() => self.accept(std::mem::take(&mut puts), answers)?,
                _ => {}
            }
            match item {
                Item::Put(_) => unreachable!("taken above"),
                Item::Cancel(cancel) => answers.push(self.cancel(&cancel)?),
                Item::Reschedule(it) => answers.push(self.reschedule(&it)?),
                Item::Pause { is_paused } => answers.push(self.pause(is_paused)?),
                Item::Look { id, key } => answers.push(self.look(key.as_deref(), &id)?),
                Item::Letter(letter) => {
                    self.letters.push(letter);
                    self.counts.dead_letters += 1;
                }
                Item::Progress(progress) => self.store.put_input(&progress)?,
                Item::Dropped(count) => self.counts.duplicates += count,
            }
        }
        if puts.is_empty() { Ok(()) } else { self.accept(puts, answers) }
    }

    fn accept(&mut self, puts: Vec<Incoming>, answers: &mut Vec<Answer>) -> Result<(), StoreError> {
        let accepted = self.store.accept(&puts, self.now_ms)?;
        let mut fresh = Vec::with_capacity(puts.len());
        for (put, accepted) in puts.into_iter().zip(accepted) {
            answers.push(match accepted {
                Accepted::New(seq) => {
                    self.counts.accepted += 1;
                    let (due_ms, size) = (put.message.due_ms, put.message.size_in_memory() as u32);
                    let (redelivered, attempts, next_ms) = (false, 0, None);
                    let row = Waiting { due_ms, seq, lane: put.lane, size, redelivered, attempts, next_ms };
                    fresh.push((row, put.message.body));
                    Answer::Accepted
                }
                Accepted::CancelledBefore(_) => {
                    self.counts.accepted += 1;
                    self.counts.cancelled += 1;
                    Answer::Cancelled
                }
                Accepted::Known(known) => self.again(&put, &known),
            });
        }
        self.admit(&fresh)
    }

    /// What is due soon comes into memory, and all else waits in the store.
    fn admit(&mut self, fresh: &[(Waiting, Body)]) -> Result<(), StoreError> {
        let (mut held, mut gone) = (Vec::new(), Vec::new());
        for part in fresh.chunks(ADMIT) {
            let mut dispatcher = self.dispatcher.lock();
            for (row, body) in part {
                let slot = dispatcher.window.admit(*row, body.clone(), &mut gone);
                if let Some(slot) = slot {
                    self.admitted.push((slot, row.seq));
                    self.first_due_ms = Some(self.first_due_ms.map_or(row.due_ms, |first| first.min(row.due_ms)));
                    // That it may have arrived is kept by its row.
                    dispatcher.window.entry_mut(slot).is_near = !row.redelivered;
                }
                if slot.is_none() || row.redelivered {
                    let Waiting { due_ms, seq, lane, size, redelivered, .. } = *row;
                    held.push(Held { due_ms, seq, lane, size, redelivered });
                }
            }
        }
        held.extend(gone.iter().filter(|gone| gone.was_near).map(held_of));
        self.store.hold(&held)
    }

    fn again(&mut self, put: &Incoming, known: &Known) -> Answer {
        if known.content != put.content {
            if let Some(origin) = &put.origin {
                let BadRecord { reason, allowed } = conflict();
                let source = origin.source.to_string();
                let record = record_of_incoming(put);
                self.letters.push(Letter { source, line: origin.line as i64, reason, allowed, record });
                self.counts.dead_letters += 1;
            }
            self.counts.conflicts += 1;
            return Answer::Conflict;
        }
        self.counts.duplicates += 1;
        if known.outcome == Some(Outcome::Cancelled) { Answer::Cancelled } else { Answer::Duplicate }
    }

    fn cancel(&mut self, cancel: &Cancel) -> Result<Answer, StoreError> {
        let key = cancel.key.as_deref();
        let Some(known) = self.store.find(key, &cancel.id)? else {
            let until_ms = self.now_ms.saturating_add(i64::from(cancel.keep_days) * DAY_MS);
            self.store.remember_cancel(key, &cancel.id, self.now_ms, Some(until_ms))?;
            return Ok(Answer::Unknown);
        };
        match self.take_back(&known, Outcome::Cancelled)? {
            Ok(_) => {
                self.taken_back.push((known.seq, None));
                self.finish(&known, Outcome::Cancelled)?;
                self.counts.cancelled += 1;
                Ok(Answer::Cancelled)
            }
            Err(answer) => {
                if answer == Answer::Cancelled {
                    self.counts.duplicates += 1;
                } else {
                    self.counts.cancels_too_late += 1;
                }
                Ok(answer)
            }
        }
    }

    /// A pause holds at once, so that nothing is sent after its answer.
    fn pause(&mut self, is_paused: bool) -> Result<Answer, StoreError> {
        self.store.put_meta(PAUSED, is_paused.then_some(self.now_ms))?;
        self.resumes = !is_paused;
        if is_paused {
            self.dispatcher.lock().pause(true);
        }
        Ok(if is_paused { Answer::Paused } else { Answer::Resumed })
    }

    /// It goes on as a new message of the same name: among those that are due in the same millisecond it is the last.
    fn reschedule(&mut self, to: &Reschedule) -> Result<Answer, StoreError> {
        let Some(known) = self.store.find(to.key.as_deref(), &to.id)? else { return Ok(Answer::Unknown) };
        let left = match self.take_back(&known, Outcome::Moved)? {
            Ok(left) => left,
            Err(answer) => return Ok(answer),
        };
        let tried = left.tried.as_ref();
        let (seq, message) = self.store.move_to(&known, to.due_ms, tried)?;
        self.taken_back.push((known.seq, Some(seq)));
        self.finish(&known, Outcome::Moved)?;
        let row = Waiting {
            due_ms: to.due_ms,
            seq,
            lane: lane_of(message.body.key()),
            size: message.size_in_memory() as u32,
            redelivered: left.redelivered,
            attempts: tried.map_or(0, |it| it.attempts),
            next_ms: None,
        };
        self.admit(&[(row, message.body)])?;
        self.counts.rescheduled += 1;
        Ok(Answer::Rescheduled)
    }

    /// Keeps a message from going out, or says why it is too late. What is left of it is to be finished.
    fn take_back(&mut self, known: &Known, outcome: Outcome) -> Result<Result<Left, Answer>, StoreError> {
        if let Some(outcome) = known.outcome {
            return Ok(Err(answer_of(outcome)));
        }
        let found = self.dispatcher.lock().take_back(known.seq, outcome);
        Ok(match found {
            TakenBack::Taken { attempts, redelivered } => {
                let noted = self.store.attempts(known.seq)?;
                let error = noted.and_then(|it| it.error);
                let tried = (attempts > 0).then_some(Attempts { seq: known.seq, attempts, next_ms: None, error });
                Ok(Left { redelivered, tried })
            }
            TakenBack::Absent if self.store.is_open(known)? => {
                let (redelivered, tried) = self.store.left((known.due_ms, known.seq))?;
                Ok(Left { redelivered, tried })
            }
            TakenBack::Absent => Err(Answer::Delivered),
            TakenBack::Over(outcome) => Err(answer_of(outcome)),
            TakenBack::Sending => Err(Answer::Delivering),
        })
    }

    fn finish(&mut self, known: &Known, outcome: Outcome) -> Result<(), StoreError> {
        self.store.finish(&[Done {
            seq: known.seq,
            due_ms: known.due_ms,
            outcome,
            at_ms: self.now_ms,
            lateness_us: None,
            attempts: 0,
            redelivered: false,
        }])
    }

    fn look(&mut self, key: Option<&str>, id: &str) -> Result<Answer, StoreError> {
        let Some(known) = self.store.find(key, id)? else { return Ok(Answer::Unknown) };
        Ok(match known.outcome {
            Some(outcome) => answer_of(outcome),
            None => match self.dispatcher.lock().state_of(known.seq) {
                Some((State::Over, outcome, _)) => answer_of(outcome.unwrap_or(Outcome::Delivered)),
                Some((State::Sending, ..)) => Answer::Delivering,
                Some((State::Retrying, _, attempts)) if attempts > 0 => Answer::Delivering,
                Some(_) => Answer::Waiting,
                None if self.store.is_open(&known)? => Answer::Waiting,
                None => Answer::Delivered,
            },
        })
    }
}

/// What goes on with a message that was taken back.
struct Left {
    /// It may have arrived.
    redelivered: bool,
    /// Its attempts, if any was made.
    tried: Option<Attempts>,
}

/// The row of a near message that leaves memory.
pub(super) fn held_of(gone: &Gone) -> Held {
    Held {
        due_ms: gone.due_ms,
        seq: gone.seq,
        lane: gone.body.as_ref().and_then(|body| lane_of(body.key())),
        size: gone.size,
        redelivered: gone.redelivered,
    }
}

fn answer_of(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Delivered => Answer::Delivered,
        Outcome::Cancelled => Answer::Cancelled,
        Outcome::Dead => Answer::Dead,
        Outcome::Moved => Answer::Unknown, // the one that it goes on as is forgotten later than it
    }
}

/// What is wrong with a message whose name is known with other content.
pub(super) fn conflict() -> BadRecord {
    BadRecord::new("this key and id were accepted before with other content", "the same content again, or another id")
}
