//! Changes of a known message: cancel it, reschedule it, replace it, requeue it (D7, D16).
//!
//! Each change has one exact answer, also in the moment of sending. If a message is taken back, it does not go out. If
//! its send has begun, the send is not undone.

use std::sync::Arc;

use super::{DAY_MS, Group, answer_of, lane_of_body};
use crate::due::dispatcher::TakenBack;
use crate::due::strikes::IN_GROUP;
use crate::due::window::State;
use crate::formats::ndjson::fields_of;
use crate::group::items::Answer;
use crate::message::columns::Columns;
use crate::message::fields::{Request, Schema, Value};
use crate::message::incoming::Incoming;
use crate::message::partition::partition_of_name;
use crate::message::recurrence::NEVER_MS;
use crate::message::shares::tenant_in;
use crate::message::until::Cause;
use crate::message::{Cancel, Message, Reschedule};
use crate::store::{Attempts, CRASHED, Filter, Known, Outcome, Position, Result, WaitingRow};

impl Group<'_> {
    pub(super) fn cancel(&mut self, cancel: &Cancel) -> Result<Answer> {
        let key = cancel.key.as_deref();
        let (known, id) = self.named(key, &cancel.id)?;
        let Some(known) = known.filter(|known| known.outcome != Some(Outcome::Withdrawn)) else {
            let until_ms = self.now_ms.saturating_add(i64::from(cancel.keep_days) * DAY_MS);
            self.store.remember_cancel(key, &id, self.now_ms, Some(until_ms))?;
            return Ok(Answer::Unknown);
        };
        match self.take_back(&known, Outcome::Cancelled)? {
            Ok(_) => {
                self.taken_back.push((known.seq, None));
                self.finish(&[self.done(known.seq, known.due_ms, Outcome::Cancelled)])?;
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

    /// Gives a message another due time. It goes on under a new number, so it comes last among the messages of the same
    /// millisecond.
    pub(super) fn reschedule(&mut self, to: &Reschedule) -> Result<Answer> {
        let key = to.key.as_deref();
        let (Some(known), _) = self.named(key, &to.id)? else {
            self.counts.reschedules_too_late += 1;
            return Ok(Answer::Unknown);
        };
        let known = self.open_one(known)?;
        let left = match self.take_back(&known, Outcome::Moved)? {
            Ok(left) => left,
            Err(answer) => {
                self.counts.reschedules_too_late += 1;
                return Ok(answer);
            }
        };
        self.counts.rescheduled += 1;
        self.move_to(&known, to.due_ms, &left)?;
        Ok(Answer::Rescheduled)
    }

    /// Gives another due time to a message that was taken back.
    pub(super) fn move_to(&mut self, known: &Known, due_ms: i64, left: &Left) -> Result<()> {
        let tried = left.tried.as_ref();
        let is_decided = known.due_ms <= self.now_ms || left.redelivered || tried.is_some();
        let (seq, message) = self.store.move_to(known, due_ms, tried, is_decided)?;
        self.store.move_occurrence(known.seq, seq)?;
        self.taken_back.push((known.seq, Some(seq)));
        self.finish(&[self.done(known.seq, known.due_ms, Outcome::Moved)])?;
        self.admit_again(seq, message, left.redelivered, tried)
    }

    /// Replaces the waiting message of the same name. If that message has an outcome, the new message is accepted
    /// beside it. In both cases a destination sees another digest than before. Returns the answer, and the due time of a
    /// message that is accepted.
    pub(super) fn replace(&mut self, put: Incoming, at_latest_ms: Option<i64>) -> Result<(Answer, Option<i64>)> {
        let known = self.store.find(put.message.key(), put.message.id())?;
        let recurs = put.message.body.recurrence().is_some();
        if recurs && known.as_ref().is_some_and(|known| known.due_ms == NEVER_MS) {
            return Ok((self.recur_again(put, true)?, None));
        }
        if self.is_full(&put, &mut Vec::new(), &mut Vec::new(), true)? {
            return Ok((Answer::Full, None));
        }
        let Incoming { mut message, content, .. } = put;
        let at_latest_ms = at_latest_ms.filter(|_| !recurs);
        let taken_back = match &known {
            None => Err(Answer::Unknown),
            Some(known) => self.take_back(known, Outcome::Moved)?,
        };
        if let (Some(known), Err(_)) = (&known, &taken_back)
            && self.store.is_open(known)?
        {
            return Ok((Answer::Delivering, None)); // it is being sent, or its outcome is not on disk
        }
        let waited = known.as_ref().filter(|_| taken_back.is_ok());
        let latest_ms = match (waited, at_latest_ms) {
            (_, None) => None, // this call sets no bound
            (None, Some(after_ms)) => Some(self.now_ms.saturating_add(after_ms)),
            (Some(known), Some(after_ms)) => {
                let first = self.store.open_message(known.seq)?.body.extras().and_then(|extras| extras.latest_ms);
                first.or(Some(self.now_ms.saturating_add(after_ms)))
            }
        };
        message.due_ms = message.due_ms.min(latest_ms.unwrap_or(i64::MAX));
        let due_ms = (!recurs).then_some(message.due_ms);
        let again = known.is_some().then(|| self.store.last_seq() + 1);
        message.body = message.body.with(|extras| (extras.latest_ms, extras.again) = (latest_ms, again));
        let Some(known) = known else {
            let (digest, lane) = (put.digest, put.lane);
            let put = Incoming { message, digest, content, lane, origin: None, redelivered: false, moved_to_ms: None };
            let mut answers = Vec::new();
            self.accept(vec![put], &mut answers)?;
            return Ok((answers[0], due_ms));
        };
        let seq = self.store.write_again(&message, content)?;
        let answer = if taken_back.is_ok() {
            self.store.move_occurrence(known.seq, seq)?;
            self.taken_back.push((known.seq, None));
            self.finish(&[self.done(known.seq, known.due_ms, Outcome::Moved)])?;
            self.counts.rescheduled += 1;
            Answer::Replaced
        } else {
            self.counts.accepted += 1;
            Answer::Accepted
        };
        let message = self.let_go_at_once(seq, message)?;
        self.admit_again(seq, message.clone(), false, None)?;
        if recurs {
            self.begin_recurring(seq, &message.body)?;
        }
        Ok((answer, due_ms))
    }

    /// Makes a dead letter a message again, with all attempts and without `expires`.
    pub(super) fn requeue(&mut self, key: Option<&str>, id: &str) -> Result<Answer> {
        let Some(known) = self.store.find(key, id)? else { return Ok(Answer::Unknown) };
        let Some(outcome) = known.outcome.filter(|outcome| outcome.is_dead()) else { return self.look(key, id) };
        Ok(self.requeue_letter(known.seq, None)?.unwrap_or(answer_of(outcome)))
    }

    /// `Requeued`: the dead letter is a message again. `Refused`: its destination is not set. `None`: its record is gone,
    /// `filter` does not match, or the message was submitted again since then.
    pub(super) fn requeue_letter(&mut self, seq: i64, filter: Option<&Filter>) -> Result<Option<Answer>> {
        let Some((record, reason, event)) = self.store.letter(seq)? else { return Ok(None) };
        let Some(mut message) = read_again(&record, self.now_ms) else { return Ok(None) };
        let takes = |it: &Filter| it.takes_due(message.due_ms) && it.takes_body(Some(&message.body));
        let Some(known) = self.store.find(message.key(), message.id())?.filter(|known| known.seq == seq) else {
            return Ok(filter.filter(|it| takes(it)).map(|_| Answer::Duplicate)); // a later message has its name
        };
        if !(known.outcome.is_some_and(Outcome::is_dead) && filter.is_none_or(takes)) {
            return Ok(None);
        }
        let Some(share) = self.share_of(&message.body)? else {
            return Ok(Some(Answer::Refused)); // its destination was removed
        };
        let is_open = message.due_ms > self.now_ms && event.as_deref() == Some("");
        self.store.drop_letter(seq)?;
        let (again, first) = self.store.numbers_of(seq)?;
        let cause = match (event.as_deref(), message.key()) {
            (Some(data), Some(key)) if !data.is_empty() => {
                let data = Arc::from(data);
                Cause::Event(self.store.put_data(key, &data)?, data)
            }
            _ if is_open => Cause::Open,
            _ => Cause::Deadline,
        };
        message.body = message.body.with(|extras| {
            extras.share = share;
            extras.tenant.take_if(|_| tenant_in(share) == 0);
            if let Some(until) = &mut extras.until {
                until.cause = cause;
            }
        });
        message.body = message.body.numbered(again, first);
        let seq = self.store.write_again(&message, known.content)?;
        self.counts.accepted += 1;
        self.counts.requeued += 1;
        if message.body.recurrence().is_some() {
            self.admit_again(seq, message.clone(), false, None)?;
            self.begin_recurring(seq, &message.body)?;
            return Ok(Some(Answer::Requeued));
        }
        let message = self.let_go_at_once(seq, message)?;
        self.store.waits_no_more(seq)?; // it may have arrived, so any other event comes too late
        // A message that ended the process each time goes out with care.
        let strikes = if reason.ends_with(CRASHED) { IN_GROUP } else { 0 };
        let struck = Attempts { strikes, ..Attempts::none(seq, share) };
        if strikes > 0 {
            self.store.note_attempts(std::slice::from_ref(&struck))?;
        }
        self.admit_again(seq, message, true, Some(&struck))?; // if it was tried, it may have arrived
        Ok(Some(Answer::Requeued))
    }

    pub(super) fn admit_again(
        &mut self,
        seq: i64,
        message: Message,
        redelivered: bool,
        tried: Option<&Attempts>,
    ) -> Result<()> {
        let (due_ms, size) = (message.due_ms, message.size_in_memory() as u32);
        let (share, lane) = lane_of_body(&message.body);
        let tried = tried.cloned().unwrap_or_else(|| Attempts::none(seq, share));
        let row = WaitingRow {
            redelivered,
            attempts: tried.attempts,
            counted: tried.counted,
            waited_ms: tried.waited_ms,
            tried_ms: tried.at_ms,
            is_unanswered: tried.is_unanswered,
            strikes: tried.strikes,
            share,
            ..WaitingRow::untried(due_ms, seq, lane, size)
        };
        self.admit(&[(row, partition_of_name(message.key(), message.id()), Some(message.body))], false)
    }

    /// Takes a message back, so that it does not go out, or returns why it is too late. The caller then finishes its
    /// old number.
    pub(super) fn take_back(&mut self, known: &Known, outcome: Outcome) -> Result<Result<Left, Answer>> {
        if let Some(outcome) = known.outcome {
            return Ok(Err(answer_of(outcome)));
        }
        self.take_back_at((known.due_ms, known.seq), outcome)
    }

    /// The same for a message whose outcome is not on disk.
    pub(super) fn take_back_at(&mut self, position: Position, outcome: Outcome) -> Result<Result<Left, Answer>> {
        let seq = position.1;
        let found = self.dispatcher.lock().take_back(seq, outcome);
        Ok(match found {
            TakenBack::Taken { attempts, counted, strikes, redelivered, share } => {
                let noted = self.store.attempts(seq)?;
                let noted = noted.unwrap_or_else(|| Attempts::none(seq, share));
                let is_known = attempts > 0 || strikes > 0;
                let tried = is_known.then_some(Attempts { attempts, counted, strikes, next_ms: None, ..noted });
                Ok(Left { redelivered, tried })
            }
            TakenBack::Absent if self.store.is_open_at(position)? => {
                let (redelivered, tried) = self.store.left(position)?;
                let mut dispatcher = self.dispatcher.lock();
                // The store may get its `redelivered` mark only with this group.
                let was_sent = dispatcher.window.sent_and_left().contains(&position);
                let is_unanswered = tried.as_ref().is_some_and(|it| it.is_unanswered);
                let redelivered = redelivered || was_sent || is_unanswered;
                if redelivered && dispatcher.others_may_send(outcome) {
                    return Ok(Err(Answer::Delivering));
                }
                if let Some(tried) = &tried {
                    dispatcher.take_back_parked(tried.share, seq);
                }
                Ok(Left { redelivered, tried })
            }
            TakenBack::Absent => Err(Answer::Delivered),
            TakenBack::Over(outcome) => Err(answer_of(outcome)),
            TakenBack::Sending => Err(Answer::Delivering),
        })
    }

    pub(super) fn look(&mut self, key: Option<&str>, id: &str) -> Result<Answer> {
        let Some(known) = self.store.find(key, id)? else { return Ok(Answer::Unknown) };
        let state = self.dispatcher.lock().state_of(known.seq); // the lock is not held while the store is read
        Ok(match known.outcome {
            Some(outcome) => answer_of(outcome),
            None => match state {
                Some((State::Over, outcome, _)) => answer_of(outcome.unwrap_or(Outcome::Delivered)),
                Some((State::Sending, ..)) => Answer::Delivering,
                None if !self.store.is_open(&known)? => Answer::Delivered,
                None if known.due_ms == NEVER_MS => Answer::Recurring,
                Some(_) | None => Answer::Waiting,
            },
        })
    }
}

/// The state of a message that was taken back, for the message that takes its place.
pub(super) struct Left {
    /// It may have arrived.
    pub(super) redelivered: bool,
    /// Its attempts, if there were any.
    pub(super) tried: Option<Attempts>,
}

/// Reads the message from the record of a dead letter. It leaves out `expires`, because a reschedule may have moved the
/// message past this time.
fn read_again(record: &[u8], now_ms: i64) -> Option<Message> {
    let schema = Schema::new(Columns::default(), usize::MAX);
    let mut fields = fields_of(std::str::from_utf8(record).ok()?, &schema).ok()?;
    fields.expires = Value::Absent;
    match schema.check(&fields, now_ms.checked_mul(1_000_000)).ok()? {
        Request::Message(message) => Some(message),
        _ => None,
    }
}
