//! Recurring messages follow a step of the wall clock (D19), some in each group. The place is in the store, so a crash
//! in between loses nothing. `docs/internals/design.md` has the cases.

use super::Group;
use super::next_occurrence::recurrence_of;
use crate::base::times::MAX_DUE_MS;
use crate::message::Message;
use crate::message::recurrence::{Recurrence, Rule, Step, occurrence_id};
use crate::store::{Occurrence, Outcome, Result, Steps};

/// How many rules one group looks at, and about how many bytes of payloads it copies.
const LOOK: i64 = if cfg!(test) { 50 } else { 500 };
const LOOK_BYTES: i64 = 4 << 20;
/// Steps under a second are not added up, and an acceptance takes time: by so much the clock may differ from what is noted.
const SLACK_MS: i64 = 60_000;
const MOST_AHEAD: u32 = 1_000;

impl Group<'_> {
    /// Lets some rules follow the last step of the wall clock.
    pub(crate) fn follow_step(&mut self) -> Result<()> {
        let Some(mut stepping) = self.actions.stepping.take() else { return Ok(()) };
        let mut rules = std::mem::take(&mut stepping.sending);
        if stepping.at < i64::MAX {
            let found = self.store.rules_after(stepping.at, LOOK)?;
            stepping.at = if found.is_empty() { i64::MAX } else { stepping.at };
            let mut bytes = 0;
            for (of_seq, size) in found {
                if bytes < LOOK_BYTES {
                    (stepping.at, bytes) = (of_seq, bytes + size);
                    rules.push(of_seq);
                }
            }
        }
        for of_seq in rules {
            if !self.make_anew(of_seq)? {
                stepping.sending.push(of_seq);
            }
        }
        let at = stepping.sending.iter().min().map_or(stepping.at, |first| first - 1);
        let followed = (at < i64::MAX).then_some(at);
        if followed != self.store.steps().followed {
            self.store.put_steps(Steps { followed, ..self.store.steps() })?;
        }
        self.actions.stepping = followed.map(|_| stepping);
        Ok(())
    }

    /// Lets a rule follow, if the wall clock was stepped since its occurrence was made. `false`: that is being sent.
    pub(super) fn make_anew(&mut self, of_seq: i64) -> Result<bool> {
        let Some((known, it)) = self.store.occurrence_of(of_seq)? else { return Ok(true) };
        if it.stepped_ms == self.store.steps().sum_ms {
            return Ok(true);
        }
        let mut message = self.store.open_message(of_seq)?;
        let rule = recurrence_of(&message);
        let Some(step) = self.step_since(rule, &it) else { return self.has_followed(it) };
        let at_ms = rule.stepped(step).open_after(step, it.at_ms);
        let is_put_off = known.due_ms != it.at_ms;
        let left = if is_put_off || matches!(at_ms, Ok(at_ms) if at_ms == it.at_ms) {
            None
        } else {
            let Ok(left) = self.take_back(&known, Outcome::Withdrawn)? else { return Ok(false) };
            Some(left)
        };
        let after_ms = it.after_ms.map(|over_ms| self.over_after(step, &message, over_ms)).transpose()?;
        // One that was due may be of an earlier rule, with another payload.
        let was_due = known.due_ms <= step.before_ms();
        let sent = left.as_ref().filter(|left| was_due || left.redelivered || left.tried.is_some());
        let over_ms = if is_put_off || sent.is_some() { self.over_after(step, &message, it.at_ms)? } else { it.at_ms };
        self.move_rule(step, &mut message, of_seq)?;
        if let Some(sent) = sent {
            self.move_to(&known, (known.due_ms + step.by_ms).clamp(0, MAX_DUE_MS), sent)?;
        } else if left.is_some() {
            self.withdraw(&known)?;
            self.make_occurrence(of_seq, &message, at_ms, after_ms)?;
            return Ok(true);
        }
        self.has_followed(Occurrence { at_ms: over_ms, after_ms, ..it })
    }

    /// The step of the wall clock since this occurrence was made, if its rule follows.
    pub(super) fn step_since(&self, rule: &Recurrence, it: &Occurrence) -> Option<Step> {
        let by_ms = self.store.steps().sum_ms - it.stepped_ms;
        let step = Step { by_ms, now_ms: self.now_ms };
        let stays = match &rule.rule {
            Rule::Every { every } => {
                let latest_ms = step.before_ms() + SLACK_MS;
                let is_start = it.at_ms == rule.from_ms && it.at_ms - every > latest_ms;
                is_start || it.made_ms > latest_ms
            }
            Rule::Cron { .. } => false,
        };
        (by_ms != 0 && !stays).then_some(step)
    }

    /// Moves the rule itself.
    pub(super) fn move_rule(&mut self, step: Step, message: &mut Message, of_seq: i64) -> Result<()> {
        let rule = recurrence_of(message).stepped(step);
        if rule != *recurrence_of(message) {
            self.store.put_rule(of_seq, &rule)?;
            message.body = message.body.clone().recurring(rule);
        }
        Ok(())
    }

    /// Up to which time the occurrences of a rule are over after the step, if that was `over_ms`. Times of a pattern that
    /// were over ahead of the clock, because a caller cancelled them or had them sent early, do not come when it shows
    /// them.
    pub(super) fn over_after(&mut self, step: Step, message: &Message, over_ms: i64) -> Result<i64> {
        let rule = recurrence_of(message);
        let repeats = matches!(rule.rule, Rule::Cron { .. }) && step.by_ms < 0;
        let (mut at_ms, mut count) = (step.before_ms(), 0);
        while repeats
            && count < MOST_AHEAD
            && let Ok(next_ms) = rule.at_or_after(at_ms + 1)
            && next_ms <= over_ms
        {
            (at_ms, count) = (next_ms, count + 1);
            let id = occurrence_id(message.id(), at_ms, 0);
            self.store.remember_cancel(message.key(), &id, self.now_ms, None)?;
        }
        Ok(match rule.rule {
            Rule::Every { .. } => over_ms + step.by_ms,
            Rule::Cron { .. } if repeats => over_ms.min(step.now_ms - 1),
            Rule::Cron { .. } => over_ms,
        })
    }

    /// Gives the last occurrence of a rule, which is due or being sent, to the rule that takes its place.
    pub(super) fn give_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<()> {
        if let Some((_, it)) = self.store.occurrence_of(from_seq)? {
            let message = self.store.open_message(from_seq)?;
            if let Some(step) = self.step_since(recurrence_of(&message), &it) {
                // It is being sent, and did not follow. The new rule is of the corrected time.
                let at_ms = self.over_after(step, &message, it.at_ms)?;
                self.has_followed(Occurrence { at_ms, ..it })?;
            }
        }
        self.store.give_occurrence(from_seq, to_seq)
    }

    /// Notes that this occurrence has followed. Returns `true`.
    fn has_followed(&mut self, it: Occurrence) -> Result<bool> {
        self.store.change_occurrence(Occurrence { stepped_ms: self.store.steps().sum_ms, ..it })?;
        Ok(true)
    }
}
