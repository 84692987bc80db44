//! Recurring messages (D19): when an occurrence has its outcome, the next one is made in the same transaction.
//!
//! ```text
//! accepted ---> the first occurrence ---> its outcome ---> the next ---> ...
//!     |                                                      |
//!     +-- replaced: what waits is made anew by the new rule  +-- cancelled: what waits is cancelled too
//! ```
//!
//! So one occurrence is open at a time. A crash can neither leave an occurrence out nor make it twice. After a step of the
//! wall clock, `stepped_rules.rs` makes the open ones anew.

use std::borrow::Cow;

use super::Group;
use crate::base::error::BadRecord;
use crate::group::items::Answer;
use crate::message::incoming::Incoming;
use crate::message::record::record_of;
use crate::message::recurrence::{NEVER_MS, Recurrence, occurrence_id, occurrence_of};
use crate::message::{Body, Extras, Message};
use crate::store::{Accepted, Done, Known, Letter, Occurrence, Outcome, Result, Steps};

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
        for it in self.store.take_occurrences(done)? {
            let mut message = self.store.open_message(it.of_seq)?;
            let at_ms = match self.step_since(recurrence_of(&message), &it) {
                None => it.at_ms,
                Some(step) => {
                    let at_ms = self.over_after(step, &message, it.at_ms)?;
                    self.move_rule(step, &mut message, it.of_seq)?;
                    at_ms
                }
            };
            let next_ms = recurrence_of(&message).after(at_ms, self.now_ms);
            self.make_occurrence(it.of_seq, &message, next_ms, Some(at_ms))?;
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
            return Ok(self.again(&put, &known));
        }
        let is_open = self.store.is_open(&known)?;
        let Incoming { mut message, content, .. } = put;
        if is_open {
            let other = self.store.open_message(known.seq)?;
            let sent_ms = recurrence_of(&other).sent_ms;
            let rule = Recurrence { sent_ms, ..recurrence_of(&message).clone() };
            message.body = message.body.recurring(rule);
        }
        message.body = message.body.numbered(Some(self.store.last_seq() + 1), None);
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

    /// Makes the new rule go on where the earlier rule is. If the open occurrence is due, or is being sent, it is the
    /// last occurrence of the earlier rule. If it is not due yet, the occurrence of the new rule takes its place. Times
    /// that are over get no occurrence.
    fn follow(&mut self, seq: i64, message: &Message, before: i64) -> Result<()> {
        self.make_anew(before)?;
        let open = self.store.occurrence_of(before)?;
        let is_due = open.as_ref().is_some_and(|(known, _)| known.due_ms <= self.now_ms);
        if is_due || self.withdraw_occurrence(before)? == Withdrawn::Sending {
            return self.give_occurrence(before, seq);
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
        self.withdraw(&known)?;
        Ok(Withdrawn::Waited)
    }

    /// Ends an occurrence that was taken back.
    pub(super) fn withdraw(&mut self, known: &Known) -> Result<()> {
        self.store.drop_occurrence(known.seq)?;
        self.taken_back.push((known.seq, None));
        self.counts.cancelled += 1;
        self.store.finish(&[self.done(known.seq, known.due_ms, Outcome::Withdrawn)])
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
    pub(super) fn make_occurrence(
        &mut self,
        of_seq: i64,
        message: &Message,
        mut at_ms: Result<i64, BadRecord>,
        mut after_ms: Option<i64>,
    ) -> Result<()> {
        let Steps { count: steps, sum_ms: stepped_ms, .. } = self.store.steps();
        for look in 1..=2 * MOST_OVER {
            let due_ms = match at_ms {
                Ok(due_ms) => due_ms,
                Err(bad) => return self.end_recurring(of_seq, message, bad),
            };
            let put = occurrence(message, due_ms, steps);
            if steps > 0 {
                // A caller that cancels an occurrence ahead names its time alone.
                let plain = occurrence_id(message.id(), due_ms, 0);
                self.store.rename_cancel(message.key(), &plain, put.message.id())?;
            }
            let redelivered = recurrence_of(message).may_have_been_sent(due_ms);
            let seq = match self.store.accept(std::slice::from_ref(&put), self.now_ms)?.remove(0) {
                Accepted::New { seq, again, first, redelivered: may_have_arrived } => {
                    let message = Message { body: put.message.body.numbered(again, first), ..put.message };
                    self.counts.accepted += 1;
                    self.admit_again(seq, message, redelivered || may_have_arrived, None)?;
                    seq
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
                    at_ms =
                        if look == MOST_OVER { rule.at_or_after(self.now_ms) } else { rule.after(due_ms, self.now_ms) };
                    continue;
                }
            };
            let made_ms = self.now_ms;
            let made = Occurrence { of_seq, at_ms: due_ms, after_ms, made_ms, stepped_ms };
            return self.store.put_occurrence(seq, made);
        }
        let bad =
            BadRecord::new("too many of its times in a row are over already", "a first due time that is not over");
        self.end_recurring(of_seq, message, bad)
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

    /// The message that a caller names, and the id under which a cancel of it is remembered. An occurrence may be named by
    /// its time alone, in any form.
    pub(super) fn named<'a>(&mut self, key: Option<&str>, id: &'a str) -> Result<(Option<Known>, Cow<'a, str>)> {
        let known = self.store.find(key, id)?;
        let is_there = known.as_ref().is_some_and(|it| it.outcome != Some(Outcome::Withdrawn));
        let Some((of, due_ms)) = occurrence_of(id).filter(|_| !is_there && self.store.recurring_count() > 0) else {
            return Ok((known, id.into()));
        };
        let Some(rule) = self.store.find(key, of)?.filter(Known::is_open_rule) else { return Ok((known, id.into())) };
        self.make_anew(rule.seq)?;
        let plain = occurrence_id(of, due_ms, 0);
        match self.store.occurrence_of(rule.seq)? {
            Some((open, it)) if it.at_ms == due_ms => Ok((Some(open), plain.into())),
            _ => Ok((self.store.find(key, &plain)?, plain.into())),
        }
    }

    /// If a caller names a recurring message and a due time, it means the open occurrence. Returns that occurrence.
    pub(super) fn open_one(&self, known: Known) -> Result<Known> {
        if known.due_ms != NEVER_MS {
            return Ok(known);
        }
        Ok(self.store.occurrence_of(known.seq)?.map_or(known, |(occurrence, _)| occurrence))
    }

    pub(super) fn done(&self, seq: i64, due_ms: i64, outcome: Outcome) -> Done {
        Done::unsent(seq, due_ms, outcome, self.now_ms)
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

/// Makes the occurrence for `due_ms`.
fn occurrence(of: &Message, due_ms: i64, steps: i64) -> Incoming {
    let body = &of.body;
    let (traceparent, destination) = (body.traceparent().map(Into::into), body.destination().map(Into::into));
    let tenant = body.tenant().map(Into::into);
    let extras = Extras { traceparent, destination, tenant, share: body.share(), ..Extras::default() };
    let id = occurrence_id(body.id(), due_ms, steps);
    let body = Body::new(body.key(), &id, body.payload(), body.is_json()).with_extras(extras);
    Incoming::of(Message { body, due_ms, delay_ms: None })
}

pub(super) fn recurrence_of(message: &Message) -> &Recurrence {
    message.body.recurrence().expect("a message that is never due has a rule")
}
