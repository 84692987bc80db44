//! The answers of the destination, and their effect on each message.

use super::World;
use super::types::{Key, Life, MAX_ATTEMPTS, WaitsAs};
use crate::sinks::{Verdict, Verdicts};
use crate::store::Outcome;

impl World {
    pub(super) fn settle(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let place = self.random.below(self.flights.len() as u64) as usize;
        let flight = self.flights.remove(place).unwrap();
        if !self.engine.is_in_flight(flight.number) {
            self.engine.settle(flight.number, Verdicts::Delivered, None); // the answer of a send that was cut off
            return;
        }
        let kind = if self.is_healed { 0 } else { self.random.below(8) };
        let verdicts: Vec<Verdict> = flight.messages.iter().map(|_| self.verdict(kind)).collect();
        show!(self, "settle {}: {verdicts:?}", flight.number);
        let is_down = self.engine.lock_dispatcher().is_any_down();
        let is_calm = !is_down && !flight.was_down && verdicts.len() == 1;
        for (key, verdict) in flight.messages.iter().zip(&verdicts) {
            self.note(*key, verdict, is_calm, flight.began_us);
        }
        let before = self.outcomes();
        if let Some(log) = &mut self.log {
            let arrived = flight.seqs.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Delivered);
            log.extend(arrived.map(|(seq, _)| *seq));
        }
        let position = self.log.as_ref().map(|log| log.len().to_string());
        let is_short = self.random.below(4) == 0 && verdicts.iter().all(|it| *it == Verdict::Delivered);
        let verdicts = if is_short { Verdicts::Delivered } else { Verdicts::Each(verdicts) };
        self.engine.settle(flight.number, verdicts, position);
        self.hear_the_dead(before);
    }

    pub(super) fn verdict(&mut self, kind: u64) -> Verdict {
        let retry_after_ms = (self.random.below(4) == 0).then_some(300);
        match kind {
            0..4 => Verdict::Delivered,
            4 => Verdict::Refused("no".into()),
            5 if self.random.below(3) == 0 => Verdict::Failed { reason: "500".into(), retry_after_ms },
            5 => Verdict::Unanswered { reason: "503".into(), retry_after_ms },
            6 => Verdict::Unreachable { reason: "refused".into(), retry_after_ms },
            _ if self.random.below(4) == 0 => Verdict::NotTried,
            _ => {
                let kind = self.random.below(7);
                self.verdict(kind)
            }
        }
    }

    /// `is_calm`: the destination was up when the send began and when it ended, and no other message of the send may have
    /// changed that.
    pub(super) fn note(&mut self, key: Key, verdict: &Verdict, is_calm: bool, began_us: u64) {
        let of = self.waits_as(key);
        if *verdict != Verdict::Delivered {
            let since_us = self.failing_since_us.get(&of).copied().unwrap_or(began_us);
            self.first_failed_us.entry(key).or_insert(since_us);
        }
        let life = self.lives.get_mut(&key).unwrap();
        life.is_in_flight = false;
        life.is_retrying = *verdict != Verdict::Delivered;
        match verdict {
            Verdict::Delivered => {
                life.end = Some(Outcome::Delivered);
                self.failing_since_us.remove(&of);
                return;
            }
            Verdict::NotTried => {
                // A sink that tried none of its messages counts as unreachable for the first one.
                self.failures.entry(key).or_default().made_maybe += 1;
                self.failing_since_us.entry(of).or_insert(began_us);
                return;
            }
            Verdict::Final(_) => unreachable!("no sink of the simulation says so"),
            Verdict::Refused(_) | Verdict::Unreachable { .. } => {}
            Verdict::Failed { .. } | Verdict::Unanswered { .. } => drop(self.unanswered.insert(key)),
        }
        self.failing_since_us.entry(of).or_insert(began_us);
        let failures = self.failures.entry(key).or_default();
        failures.made += 1;
        match verdict {
            Verdict::Refused(_) if is_calm => failures.counted += 1,
            Verdict::Refused(_) | Verdict::Failed { .. } => failures.counted_maybe += 1,
            _ => {}
        }
    }

    /// The key, or the message if it has none.
    fn waits_as(&self, key: Key) -> WaitsAs {
        let key_of_message = key.0.0.map(|of| (of, self.share_of(key.0)));
        if self.settings.is_global { (None, None) } else { (key_of_message, key_of_message.is_none().then_some(key)) }
    }

    /// How many outcomes wait for the writer.
    pub(super) fn outcomes(&self) -> usize {
        self.engine.queue.outcomes().len()
    }

    /// Notes the messages that were given up since there were `before` outcomes.
    pub(super) fn hear_the_dead(&mut self, before: usize) {
        for done in self.engine.queue.outcomes().into_iter().skip(before) {
            if done.outcome == Outcome::Expired {
                let key = self.numbers[&done.seq];
                let expires_ms = self.stored_mut(key).expires_ms;
                assert!(expires_ms.is_some_and(|ms| self.wall_ms() > ms), "{key:?} expired too early");
                *self.lives.entry(key).or_default() = Life { end: Some(done.outcome), ..Life::default() };
            }
            if done.outcome == Outcome::Dead {
                let Some(key) = self.numbers.get(&done.seq).copied() else { continue };
                let it = self.failures.get(&key).copied().unwrap_or_default();
                let by_count = it.counted + it.counted_maybe >= MAX_ATTEMPTS;
                let by_crashes = self.crashes >= 6;
                let first_us = self.first_failed_us.get(&key).filter(|_| self.was_opened_again);
                let since_us =
                    first_us.into_iter().chain(self.failing_since_us.get(&self.waits_as(key))).min().copied();
                let limit_us = self.settings.unanswered_for_ms * 1_000;
                let by_time = since_us.is_some_and(|since_us| self.lived_us - since_us >= limit_us);
                assert!(
                    by_count || by_time || by_crashes,
                    "{key:?} was given up too early: {it:?}, failing since {since_us:?}"
                );
                let life = self.lives.entry(key).or_default();
                *life = Life { end: Some(Outcome::Dead), ..Life::default() };
            }
        }
    }

    pub(super) fn hear_cut_offs(&mut self, before: usize) {
        for place in 0..self.flights.len() {
            if self.engine.is_in_flight(self.flights[place].number) {
                continue;
            }
            let began_us = self.flights[place].began_us;
            let verdict = Verdict::Unanswered { reason: "no answer in time".into(), retry_after_ms: None };
            for key in std::mem::take(&mut self.flights[place].messages) {
                self.note(key, &verdict, false, began_us);
            }
        }
        self.hear_the_dead(before);
    }
}
