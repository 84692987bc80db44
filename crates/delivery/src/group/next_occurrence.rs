//! Recurring messages (D19): when an occurrence has its outcome, the next one is made in the same transaction.
//!
//! ```text
//! accepted ---> the first occurrence ---> its outcome ---> the next ---> ...
//!     |                                                      |
//!     +-- replaced: what waits is made anew by the new rule  +-- cancelled: what waits is cancelled too
//! ```
//!
//! So one occurrence is open at a time. A crash can neither leave an occurrence out nor make it twice.

use std::borrow::Cow;

use super::Group;
use crate::base::error::BadRecord;
use crate::group::items::Answer;
use crate::message::incoming::Incoming;
use crate::message::record::record_of;
use crate::message::recurrence::{NEVER_MS, Recurrence, occurrence_id, occurrence_of};
use crate::message::{Body, Extras, Message};
use crate::store::{Accepted, Done, Known, Letter, Occurrence, Outcome, Result};

/// How many times of a rule in a row may be over, because they were delivered or cancelled under an earlier rule. Each
/// costs a look into the store. After this many, the rule goes on from now.
const MOST_OVER: usize = if cfg!(test) { 50 } else { 100_000 };

impl Group<'_> {
    /// Stores these outcomes. If a rule has ended, its occurrence ends too. If an occurrence has its outcome, the next
    /// one is made.
    pub(crate) fn finish(&mut self, done: &[Done]) -> Result<()> {
        let may_follow = self.store.recurring_count() > 0;
        self.store.finish(done)?;
        if !may_follow {
            return Ok(());
        }
        for one in done.iter().filter(|one| one.due_ms == NEVER_MS) {
            self.end_occurrence(one.seq)?;
        }
        for Occurrence { of_seq, at_ms, .. } in self.store.take_occurrences(done)? {
            let message = self.store.open_message(of_seq)?;
            let next_ms = recurrence_of(&message).after(at_ms, self.now_ms);
            self.make_occurrence(of_seq, &message, next_ms, Some(at_ms))?;
        }
        Ok(())
    }

    /// Begins a new recurring message: makes its first occurrence, however late it is.
    pub(super) fn begin_recurring(&mut self, seq: i64, body: &Body) -> Result<()> {
        let message = Message { body: body.clone(), due_ms: NEVER_MS, delay_ms: None };
        let first_ms = recurrence_of(&message).first_ms();
        self.make_occurrence(seq, &message, first_ms, None)
    }

    /// Puts a recurring message in the place of a recurring message with the same name. With `is_forced` this also
    /// happens if both have the same content.
    pub(super) fn recur_again(&mut self, put: Incoming, is_forced: bool) -> Result<Answer> {
        // Looked up now: an earlier item of the group may have taken its place.
        let known = self.store.find(put.message.key(), put.message.id())?.expect("its name is known");
        if !is_forced && (known.due_ms != NEVER_MS || known.content == put.content) {
            self.note_before(&known, &put)?;
            return Ok(self.again(&put, &known));
        }
        if self.was_done(&known, recurrence_of(&put.message).asked_ms)? {
            self.counts.duplicates += 1;
            return Ok(Answer::Duplicate);
        }
        let is_open = self.store.is_open(&known)?;
        let Incoming { mut message, content, .. } = put;
        if is_open {
            let other = self.store.open_message(known.seq)?;
            let rule = recurrence_of(&message).clone().in_place_of(recurrence_of(&other));
            message.body = message.body.recurring(rule);
        }
        message.body = message.body.again(self.store.last_seq() + 1);
        let seq = self.store.write_again(&message, content)?;
        self.admit_again(seq, message.clone(), false, None)?;
        if !is_open {
            self.counts.accepted += 1;
            self.begin_recurring(seq, &message.body)?;
            return Ok(Answer::Accepted);
        }
        self.counts.rescheduled += 1;
        self.follow(seq, &message, known.seq)?;
        self.finish(&[self.done(known.seq, NEVER_MS, Outcome::Moved)])?;
        Ok(Answer::Replaced)
    }

    /// Keeps what a lost deliverer may have sent (`before` of the new rule), although the message is known: it came
    /// with a backup.
    fn note_before(&mut self, known: &Known, put: &Incoming) -> Result<()> {
        let rule = recurrence_of(&put.message);
        match self.open_rule(known)? {
            Some(kept) if rule.before.is_some() => self.store.put_rule(known.seq, &kept.in_place_of(rule)),
            _ => Ok(()),
        }
    }

    /// Makes the new rule go on where the earlier rule is. If the open occurrence is due, or is being sent, it is the
    /// last occurrence of the earlier rule. If it is not due yet, the occurrence of the new rule takes its place. Times
    /// that are over get no occurrence.
    fn follow(&mut self, seq: i64, message: &Message, before: i64) -> Result<()> {
        let open = self.store.occurrence_of(before)?;
        let is_due = open.as_ref().is_some_and(|(known, _)| known.due_ms <= self.now_ms);
        if is_due || self.withdraw_occurrence(before)? == Withdrawn::Sending {
            return self.store.give_occurrence(before, seq);
        }
        let rule = recurrence_of(message);
        let (next_ms, after_ms) = match open {
            None => (rule.first_ms(), None),
            Some((_, Occurrence { at_ms, after_ms, .. })) => {
                let over_ms = (at_ms - 1).min(self.now_ms).max(after_ms.unwrap_or(i64::MIN));
                (rule.after(over_ms, self.now_ms), Some(over_ms))
            }
        };
        self.make_occurrence(seq, message, next_ms, after_ms)
    }

    /// Withdraws the waiting occurrence, and no other follows. If it is being sent, this changes nothing.
    fn withdraw_occurrence(&mut self, of_seq: i64) -> Result<Withdrawn> {
        let Some((known, _)) = self.store.occurrence_of(of_seq)? else { return Ok(Withdrawn::None) };
        if self.take_back(&known, Outcome::Withdrawn)?.is_err() {
            return Ok(Withdrawn::Sending);
        }
        self.store.drop_occurrence(known.seq)?;
        self.taken_back.push((known.seq, None));
        self.counts.cancelled += 1;
        self.store.finish(&[self.done(known.seq, known.due_ms, Outcome::Withdrawn)])?;
        Ok(Withdrawn::Waited)
    }

    /// Ends a rule. No other occurrence follows, even if one is being sent.
    fn end_occurrence(&mut self, of_seq: i64) -> Result<()> {
        if self.withdraw_occurrence(of_seq)? == Withdrawn::Sending
            && let Some((known, _)) = self.store.occurrence_of(of_seq)?
        {
            self.store.drop_occurrence(known.seq)?;
        }
        Ok(())
    }

    /// Makes the occurrence of this time, or of the first later time without an outcome. `after_ms`: the time of the
    /// occurrence before.
    fn make_occurrence(
        &mut self,
        of_seq: i64,
        message: &Message,
        mut at_ms: Result<i64, BadRecord>,
        mut after_ms: Option<i64>,
    ) -> Result<()> {
        for look in 1..=2 * MOST_OVER {
            let due_ms = match at_ms {
                Ok(due_ms) => due_ms,
                Err(bad) => return self.end_recurring(of_seq, message, bad),
            };
            let put = occurrence(message, due_ms, None);
            let redelivered = recurrence_of(message).may_have_been_sent(due_ms);
            let seq = match self.store.accept(std::slice::from_ref(&put), self.now_ms)?.remove(0) {
                Accepted::New(seq) => self.admit_occurrence(seq, put.message, redelivered)?,
                Accepted::NewAgain { seq, again, redelivered: may_have_arrived } => {
                    let put = occurrence(message, due_ms, again);
                    self.admit_occurrence(seq, put.message, redelivered || may_have_arrived)?
                }
                // A message of this name was submitted, or its dead letter was requeued: it is the occurrence.
                Accepted::Known(known) if self.store.is_open(&known)? => known.seq,
                // It has arrived, or it was cancelled, by an earlier rule or before it came.
                over => {
                    let is_new = u64::from(matches!(over, Accepted::CancelledBefore(_)));
                    self.counts.accepted += is_new;
                    self.counts.cancelled += is_new;
                    after_ms = Some(due_ms);
                    let rule = recurrence_of(message);
                    at_ms = if look == MOST_OVER { rule.from(self.now_ms) } else { rule.after(due_ms, self.now_ms) };
                    continue;
                }
            };
            return self.store.put_occurrence(seq, Occurrence { of_seq, at_ms: due_ms, after_ms });
        }
        let bad =
            BadRecord::new("too many of its times in a row are over already", "a first due time that is not over");
        self.end_recurring(of_seq, message, bad)
    }

    fn admit_occurrence(&mut self, seq: i64, message: Message, redelivered: bool) -> Result<i64> {
        self.counts.accepted += 1;
        self.admit_again(seq, message, redelivered, None)?;
        Ok(seq)
    }

    /// Ends a rule that has no more times. A dead letter says why.
    fn end_recurring(&mut self, seq: i64, message: &Message, bad: BadRecord) -> Result<()> {
        self.store.finish(&[self.done(seq, NEVER_MS, Outcome::Dead)])?;
        let BadRecord { reason, allowed } = bad;
        let (source, record) = ("delivery".to_owned(), record_of(message));
        self.letters.push(Letter {
            source,
            line: seq,
            reason: format!("it recurs no more: {reason}"),
            allowed,
            record,
        });
        self.counts.dead_letters += 1;
        self.counts.undeliverable += 1;
        Ok(())
    }

    /// Whether a request with this `asked_ms` was done before, or concerns an earlier message of the same name.
    pub(super) fn was_done(&mut self, known: &Known, asked_ms: Option<i64>) -> Result<bool> {
        let rule = if asked_ms.is_some() { self.open_rule(known)? } else { None };
        Ok(rule.is_some_and(|rule| rule.asked_ms >= asked_ms))
    }

    /// Notes the `asked_ms` of a request that is done now.
    pub(super) fn note_asked(&mut self, known: &Known, asked_ms: Option<i64>) -> Result<()> {
        let rule = if asked_ms.is_some() { self.open_rule(known)? } else { None };
        rule.map_or(Ok(()), |rule| self.store.put_rule(known.seq, &Recurrence { asked_ms, ..rule }))
    }

    fn open_rule(&self, known: &Known) -> Result<Option<Recurrence>> {
        if known.due_ms != NEVER_MS || !self.store.is_open(known)? {
            return Ok(None);
        }
        Ok(Some(recurrence_of(&self.store.open_message(known.seq)?).clone()))
    }

    /// The id of an occurrence as the engine writes it. A caller may write the due time in another form.
    pub(super) fn written_id<'a>(&self, key: Option<&str>, id: &'a str) -> Result<Cow<'a, str>> {
        let Some((of, due_ms)) = occurrence_of(id).filter(|_| self.store.recurring_count() > 0) else {
            return Ok(id.into());
        };
        let has_rule = self.store.find(key, of)?.is_some_and(|it| it.is_open_rule());
        let is_other = self.store.find(key, id)?.is_some(); // a message of its own
        Ok(if has_rule && !is_other { occurrence_id(of, due_ms).into() } else { id.into() })
    }

    /// If a caller names a recurring message and a due time, it means the open occurrence. Returns that occurrence.
    pub(super) fn open_one(&self, known: Known) -> Result<Known> {
        if known.due_ms != NEVER_MS {
            return Ok(known);
        }
        Ok(self.store.occurrence_of(known.seq)?.map_or(known, |(occurrence, _)| occurrence))
    }

    pub(super) fn done(&self, seq: i64, due_ms: i64, outcome: Outcome) -> Done {
        Done { seq, due_ms, outcome, at_ms: self.now_ms, lateness_us: None, attempts: 0, redelivered: false }
    }
}

/// The state of an occurrence whose rule ends or is replaced.
#[derive(PartialEq, Eq)]
enum Withdrawn {
    /// There was none.
    None,
    /// It waited.
    Waited,
    /// It is being sent, or its outcome is not on disk yet.
    Sending,
}

/// Makes the occurrence for `due_ms`. `again`: its number, if its name had an outcome before.
fn occurrence(of: &Message, due_ms: i64, again: Option<i64>) -> Incoming {
    let body = &of.body;
    let extras = Extras { traceparent: body.traceparent().map(Into::into), again, ..Extras::default() };
    let id = occurrence_id(body.id(), due_ms);
    let body = Body::new(body.key(), &id, body.payload(), body.is_json()).with_extras(extras);
    Incoming::of(Message { body, due_ms, delay_ms: None })
}

fn recurrence_of(message: &Message) -> &Recurrence {
    message.body.recurrence().expect("a message that is never due has a rule")
}
