//! The steps of the writer, one part of a group at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::World;
use super::events::{Events, check_counts};
use super::types::{Asked, Name, Source, Stored, Ticket, name_asked, text};
use crate::base::error::DeliveryError;
use crate::group::items::Answer;
use crate::group::writer::Begun;
use crate::store::Done;
use crate::store::sql::failing;

impl World {
    pub(super) fn write_a_part(&mut self) {
        if self.committed.is_some() {
            self.publish();
        } else if self.begun.is_some() {
            self.commit();
        } else {
            self.begin();
        }
    }

    pub(super) fn write(&mut self) {
        self.write_a_part();
        while self.begun.is_some() || self.committed.is_some() {
            self.write_a_part();
        }
    }

    pub(super) fn begin(&mut self) {
        show!(self, "begin");
        let begun = self.engine.begin_group().unwrap();
        self.telling.in_group = std::mem::take(&mut self.telling.answered);
        self.begun = Some((begun, std::mem::take(&mut self.submitted)));
    }

    pub(super) fn commit(&mut self) {
        let (begun, mut tickets) = self.begun.take().unwrap();
        if self.random.below(60) == 0 {
            return self.fail_to_write(begun, tickets);
        }
        show!(self, "commit");
        self.before_commit = (self.earliest_open(), self.accepted);
        let before = (self.stored.clone(), self.telling.owed.clone(), self.events.clone());
        for done in begun.done() {
            self.end_on_disk(done);
        }
        if begun.has_outcomes() && self.random.below(50) == 0 {
            return self.fail_to_sync(begun, tickets, before);
        }
        self.telling.over.extend(std::mem::take(&mut self.telling.in_group));
        for name in tickets.iter().flat_map(|it| &it.asked).filter_map(name_asked) {
            self.look_whether_forgotten(name);
        }
        self.begin_events(&tickets);
        for ticket in &mut tickets {
            for asked in ticket.asked.clone() {
                if let Asked::CancelMany(key) = asked {
                    self.actions.push_back((key, self.accepted));
                    ticket.expected.push(vec![Answer::Accepted]);
                    continue;
                }
                if let Asked::Bad(line) = asked {
                    self.telling.owed.insert(("input".to_owned(), line));
                    continue;
                }
                if let Asked::Pause(is_paused) = asked {
                    self.is_paused = is_paused;
                    ticket.expected.push(vec![if is_paused { Answer::Paused } else { Answer::Resumed }]);
                    continue;
                }
                if let Asked::PauseKey(key, is_paused) = asked {
                    ticket.expected.push(vec![self.pause_key(key, is_paused)]);
                    continue;
                }
                if let Asked::PauseTenant(number, is_paused) = asked {
                    ticket.expected.push(vec![self.pause_tenant(number, is_paused)]);
                    continue;
                }
                if let Asked::Tenant(number, change) = &asked {
                    ticket.expected.push(vec![self.change_tenant(*number, change)]);
                    continue;
                }
                if let Asked::Event { key, id, name, remember_ms } = asked {
                    let (answers, counts, gone) = self.happens((key, id), name, remember_ms);
                    ticket.expected.push(answers);
                    ticket.let_go.push(counts);
                    ticket.accepted.extend(gone);
                    continue;
                }
                if let Asked::Forget { key, id } = asked {
                    ticket.expected.push(self.forget_event((key, id)));
                    continue;
                }
                if let Asked::Again(name) = asked {
                    ticket.expected.push(self.try_again(name));
                    continue;
                }
                let (expected, key) = self.apply(&asked);
                ticket.expected.push(expected);
                ticket.accepted.extend(key);
            }
        }
        self.act();
        self.fail_chain();
        let committed = self.engine.commit_group(begun, &|| Ok(())).unwrap();
        let gone = self.learn_causes();
        if let Some(last) = tickets.last_mut() {
            last.accepted.extend(gone);
        }
        self.committed = Some((committed, tickets));
    }

    fn act(&mut self) {
        if let Some((key, through)) = self.actions.pop_front() {
            self.cancel_many(key, through); // one in each group, because there are only a few messages
        }
    }

    fn pause_key(&mut self, key: u8, is_paused: bool) -> Answer {
        if !is_paused {
            self.paused_keys.remove(&key);
            return Answer::Resumed;
        }
        if self.settings.is_global {
            return Answer::Refused;
        }
        self.paused_keys.insert(key);
        self.paused_in_group.insert(key);
        Answer::Paused
    }

    /// The messages at the destination are not durable: nothing of the group is committed, and the process ends.
    pub(super) fn fail_to_sync(
        &mut self,
        begun: Begun,
        tickets: Vec<Ticket>,
        before: (BTreeMap<Name, Vec<Stored>>, BTreeSet<Source>, Events),
    ) {
        show!(self, "the destination could not sync");
        (self.stored, self.telling.owed, self.events) = before;
        let error = DeliveryError::Failed("it is full".to_owned());
        assert!(self.engine.commit_group(begun, &|| Err(error.clone())).is_err());
        for ticket in tickets.into_iter().chain(std::mem::take(&mut self.submitted)) {
            assert!(ticket.receipt.wait(Some(Duration::ZERO)).expect("the engine failed").is_err());
        }
        assert!(self.engine.submit(Vec::new()).is_err(), "it takes nothing more");
        self.crash();
    }

    /// The store can't be written, once or several times. Tickets are refused, the sends in flight end, and the store is opened
    /// anew (D6).
    fn fail_to_write(&mut self, begun: Begun, tickets: Vec<Ticket>) {
        show!(self, "the store can't be written");
        failing::after(self.random.below(3) as u32);
        assert!(matches!(self.engine.commit_group(begun, &|| Ok(())), Err(DeliveryError::StoreWaits(_))));
        for ticket in tickets.into_iter().chain(std::mem::take(&mut self.submitted)) {
            let refused = ticket.receipt.wait(Some(Duration::ZERO)).expect("it has an answer");
            assert!(matches!(refused, Err(DeliveryError::StoreWaits(_))));
        }
        assert!(matches!(self.engine.submit(Vec::new()), Err(DeliveryError::StoreWaits(_))));
        while !self.flights.is_empty() {
            let before = self.outcomes();
            assert!(self.engine.take(1, 1 << 20, true).is_none(), "it was sent while nothing can be written");
            self.hear_cut_offs(before);
            self.settle();
        }
        while self.random.below(2) == 0 {
            failing::after(self.random.below(3) as u32);
            assert!(matches!(self.engine.open_anew(&|| Ok(())), Err(DeliveryError::StoreWaits(_))));
        }
        self.before_commit = (self.earliest_open(), self.accepted);
        for done in self.engine.queue.outcomes() {
            self.end_on_disk(&done);
        }
        self.act();
        self.engine.open_anew(&|| Ok(())).unwrap();
        self.telling.over.extend(std::mem::take(&mut self.telling.in_group));
        self.telling.over.extend(std::mem::take(&mut self.telling.answered)); // its first group has these too
        self.engine.take_events();
        self.note_retrying();
        self.forget_memory();
        self.note_kept();
        self.check_summary();
    }

    fn end_on_disk(&mut self, done: &Done) {
        let key = self.numbers[&done.seq];
        let life = self.lives[&key];
        assert_eq!(life.end, Some(done.outcome).filter(|_| life.end.is_some()), "{key:?}");
        if done.outcome.is_dead() {
            self.telling.owed.insert(("delivery".to_owned(), done.seq));
        }
        self.end(key, done.outcome);
    }

    /// Checks that a name is forgotten `keep_ids` after its outcome, and not sooner (D5).
    pub(super) fn look_whether_forgotten(&mut self, name: Name) {
        let (key, id) = text(name);
        let (is_known, is_cancelled) = self.engine.with_store(|store| {
            let is_known = store.find(key.as_deref(), &id).unwrap().is_some();
            (is_known, store.remembers_cancel(key.as_deref(), &id).unwrap())
        });
        let keep_ms = self.settings.keep_ids_ms as i64;
        let last = self.stored.get(&name).and_then(|all| all.last());
        assert!(!is_known || last.is_some(), "{name:?} is known, and never came");
        if let Some(last) = last.filter(|_| !is_known) {
            assert!(last.end.is_some(), "{name:?} is open, and not known");
            assert!(self.age_ms - last.end_at_ms >= keep_ms, "{name:?} {last:?} was forgotten too early");
            self.stored.remove(&name);
        }
        assert!(!is_cancelled || self.cancels.contains_key(&name), "a cancel of {name:?} never came");
        if !is_cancelled && let Some(at_ms) = self.cancels.remove(&name) {
            assert!(self.age_ms - at_ms >= keep_ms, "the cancel of {name:?} was forgotten too early");
        }
    }

    pub(super) fn publish(&mut self) {
        let (committed, tickets) = self.committed.take().unwrap();
        show!(self, "publish");
        self.engine.publish_group(&committed).unwrap();
        self.publish_tenants();
        for ticket in tickets {
            let answers = ticket.receipt.wait(Some(Duration::ZERO)).expect("the group is on disk").unwrap();
            check_counts(&ticket, &answers);
            let answers = answers.given;
            let asked: Vec<&Asked> = ticket.asked.iter().filter(|it| !matches!(it, Asked::Bad(_))).collect();
            assert_eq!(asked.len(), answers.len());
            for ((asked, answer), expected) in asked.into_iter().zip(answers).zip(ticket.expected) {
                assert!(expected.contains(&answer), "{asked:?} was answered {answer:?}, expected {expected:?}");
            }
            for (name, order) in ticket.accepted {
                self.stored_mut((name, order)).placed = Some(self.moment());
            }
        }
        self.observe();
        self.check_summary();
    }
}
