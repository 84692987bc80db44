//! The submitted items, and the answers that the model expects.

use std::collections::BTreeSet;

use super::World;
use super::types::{Asked, Key, Life, Name, Stored, Ticket, again, answer_of, item, name_asked, name_of};
use crate::due::window::State;
use crate::group::items::{Answer, Item};
use crate::message::Extras;
use crate::store::Outcome;

impl World {
    pub(super) fn submit(&mut self) {
        let asked: Vec<Asked> = (0..=self.random.below(4)).map(|_| self.ask()).collect();
        show!(self, "submit {asked:?}");
        let items: Vec<Item> =
            asked.iter().map(|it| item(it, name_asked(it).map_or(0, |name| self.share_of(name)))).collect();
        let largest = items.iter().map(Item::size).max().unwrap_or(0) + 2 * size_of::<Extras>(); // a name that comes again, what it waits for
        self.largest = self.largest.max(largest);
        let receipt = self.engine.submit(items).unwrap();
        self.submitted.push(Ticket { asked, receipt, expected: Vec::new(), accepted: Vec::new(), let_go: Vec::new() });
    }

    pub(super) fn ask(&mut self) -> Asked {
        let key = self.random.below(4);
        let name = ((key < 3).then_some(key as u8), self.random.below(8) as u8);
        match self.random.below(10) {
            0..2 => Asked::Cancel(name),
            2 if self.random.below(4) == 0 => {
                self.bad += 1;
                Asked::Bad(self.bad)
            }
            2 if self.tenants.count > 0 && self.random.below(3) == 0 => self.ask_tenant(),
            2 if self.random.below(3) == 0 => self.ask_event(),
            2 if self.random.below(10) == 0 => {
                Asked::CancelMany((self.random.below(4) > 0).then(|| self.random.below(3) as u8))
            }
            2 if self.random.below(6) == 0 => Asked::Pause(self.random.below(3) == 0),
            2 if self.random.below(3) == 0 => Asked::PauseKey(self.random.below(3) as u8, self.random.below(2) == 0),
            2 if self.random.below(2) == 0 => Asked::Again(name),
            2 => Asked::Look(name),
            3 if self.random.below(3) == 0 => Asked::Requeue(name),
            3 => Asked::Reschedule { name, due_ms: self.due_ms() },
            4 if self.random.below(2) == 0 => {
                let at_latest_ms = (self.random.below(2) == 0).then(|| self.random.below(1_000) as i64);
                Asked::Replace { name, due_ms: self.due_ms(), payload: self.random.below(20) as u8, at_latest_ms }
            }
            _ => {
                let due_ms = self.due_ms();
                let payload = self.random.below(20) as u8;
                let last = self.stored.get(&name).and_then(|all| all.last()).filter(|_| self.random.below(2) == 0);
                let after_ms = 1 + self.random.below(600) as i64;
                let expires_ms = (self.random.below(6) == 0).then_some(due_ms + after_ms);
                let (due_ms, payload, expires_ms) =
                    last.map_or((due_ms, payload, expires_ms), |it| (it.first_due_ms, it.payload, it.first_expires_ms));
                Asked::Put { name, due_ms, payload, expires_ms }
            }
        }
    }

    /// Due times meet, and a second message with a name is often the same again.
    fn due_ms(&mut self) -> i64 {
        let after_ms = match self.random.below(4) {
            0 => -(self.random.below(50) as i64),
            1 => self.random.below(20) as i64,
            2 => self.random.below(500) as i64,
            _ => self.random.below(4_000) as i64,
        };
        (self.wall_ms() + after_ms) / 10 * 10
    }

    /// The number of this moment.
    pub(super) fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Notes which messages left their lanes without being sent: they wait for a mark to be on disk.
    pub(super) fn observe(&mut self) {
        let moment = self.moment();
        let mut left = Vec::new();
        let mut in_memory = BTreeSet::new();
        let dispatcher = self.engine.lock_dispatcher();
        for (_, entry) in dispatcher.window.slots() {
            let Some(body) = &entry.body else { continue };
            let name = name_of(body);
            let key = (name, self.stored[&name].last().unwrap().order);
            self.numbers.insert(entry.seq, key);
            if entry.state != State::Leaving {
                in_memory.insert(key);
            }
            if matches!(entry.state, State::Retrying | State::Parked) {
                left.push(key);
            }
            if matches!(entry.state, State::Ready | State::Sending | State::Retrying | State::Parked) {
                self.may_be_again.insert(key); // it is marked where the cursor goes back behind it
            }
        }
        drop(dispatcher);
        for key in left {
            self.lives.entry(key).or_default().left_lane.get_or_insert(moment);
        }
        self.observe_paused(&in_memory);
    }

    /// The retries of a paused key are only in the store. They come back in the order of their lane, with a mark if they
    /// may have arrived.
    fn observe_paused(&mut self, in_memory: &BTreeSet<Key>) {
        let in_group = std::mem::take(&mut self.paused_in_group);
        let is_paused = |of: u8| self.paused_keys.contains(&of) || in_group.contains(&of);
        for (key, life) in &mut self.lives {
            let was_out = life.left_lane.is_some() && !life.is_in_flight && life.end.is_none();
            if was_out && key.0.0.is_some_and(is_paused) && !in_memory.contains(key) {
                life.left_lane = None;
                if std::mem::take(&mut life.is_retrying) {
                    self.may_be_again.insert(*key);
                    if self.unanswered.contains(key) {
                        self.must_be_again.insert(*key);
                    }
                }
            }
        }
    }

    pub(super) fn end(&mut self, key: Key, outcome: Outcome) {
        let age_ms = self.age_ms;
        let stored = self.stored_mut(key);
        assert_eq!(stored.end, None, "{key:?} ended twice");
        stored.end = Some(outcome);
        stored.end_at_ms = age_ms;
    }

    /// The effect of an item once it is on disk, and the correct answers.
    pub(super) fn apply(&mut self, asked: &Asked) -> (Vec<Answer>, Option<Key>) {
        let name = name_asked(asked).expect("it has an answer");
        let last = self.stored.get(&name).and_then(|all| all.last()).cloned();
        let answer = match (asked, last) {
            (Asked::Put { due_ms, payload, expires_ms, .. }, last) => {
                if let Some(last) = last.as_ref().filter(|it| !it.end.is_some_and(Outcome::is_dead)) {
                    return (vec![again(last, *due_ms, *payload, *expires_ms)], None);
                }
                let answered = self.accept(name, *due_ms, *payload, *expires_ms, None);
                let is_same = |it: &Stored| {
                    (it.first_due_ms, it.payload, it.first_expires_ms) == (*due_ms, *payload, *expires_ms)
                };
                if last.as_ref().is_some_and(is_same) {
                    self.must_be_again.extend(answered.1); // its dead letter may have arrived
                    self.may_be_again.extend(answered.1);
                }
                return answered;
            }
            (Asked::Replace { due_ms, payload, at_latest_ms, .. }, last) => {
                return self.replace(name, last.as_ref(), *due_ms, *payload, *at_latest_ms);
            }
            (Asked::Requeue(_), Some(last)) if last.end.is_some_and(Outcome::is_dead) => {
                return (vec![Answer::Requeued], Some(self.requeue(name, &last)));
            }
            (Asked::Cancel(_), None) => {
                self.cancels.entry(name).or_insert(self.age_ms);
                Answer::Unknown
            }
            (_, None) => Answer::Unknown,
            (_, Some(Stored { end: Some(end), .. })) => answer_of(end),
            (asked, Some(last)) => {
                let key = (name, last.order);
                let life = self.lives.get(&key).copied().unwrap_or_default();
                match (asked, life.end) {
                    (_, Some(end)) => answer_of(end),
                    _ if life.is_in_flight => Answer::Delivering,
                    (Asked::Cancel(_), None) => {
                        self.end(key, Outcome::Cancelled);
                        *self.lives.entry(key).or_default() = Life { end: Some(Outcome::Cancelled), ..Life::default() };
                        Answer::Cancelled
                    }
                    (Asked::Reschedule { due_ms, .. }, None) => {
                        return (vec![Answer::Rescheduled], Some(self.move_to(key, &last, *due_ms)));
                    }
                    _ => return (vec![Answer::Waiting, Answer::Delivering], None),
                }
            }
        };
        (vec![answer], None)
    }

    /// The correct answers if a key, or a message without a key, should be tried at once. Only the engine knows which of
    /// them waits.
    pub(super) fn try_again(&self, name: Name) -> Vec<Answer> {
        let is_paused = self.is_paused || name.0.is_some_and(|key| self.paused_keys.contains(&key));
        let of_key =
            if is_paused { vec![Answer::Paused] } else { vec![Answer::Tried, Answer::Unknown, Answer::Delivering] };
        if name.0.is_some() || self.settings.is_global {
            return of_key;
        }
        let Some(last) = self.stored.get(&name).and_then(|all| all.last()) else { return vec![Answer::Unknown] };
        let life = self.lives.get(&(name, last.order)).copied().unwrap_or_default();
        match (last.end, life.end) {
            (Some(end), _) => vec![answer_of(end)],
            _ if is_paused => of_key,
            (None, Some(end)) => vec![answer_of(end)],
            _ if life.is_in_flight => vec![Answer::Delivering],
            _ => vec![Answer::Tried, Answer::Waiting],
        }
    }

    fn accept(
        &mut self,
        name: Name,
        due_ms: i64,
        payload: u8,
        expires_ms: Option<i64>,
        latest_ms: Option<i64>,
    ) -> (Vec<Answer>, Option<Key>) {
        self.accepted += 1;
        let was_cancelled = self.cancels.remove(&name).is_some();
        let unmoved_ms = due_ms.min(latest_ms.unwrap_or(i64::MAX));
        let (cause, begins_ms) = self.caused_at_once(name, unmoved_ms);
        let new = Stored {
            order: self.accepted,
            due_ms: begins_ms,
            first_due_ms: due_ms,
            unmoved_ms: begins_ms,
            was_moved: false,
            payload,
            cause,
            expires_ms,
            first_expires_ms: expires_ms,
            latest_ms,
            end: was_cancelled.then_some(Outcome::Cancelled),
            end_at_ms: self.age_ms,
            placed: None,
        };
        self.stored.entry(name).or_default().push(new);
        if was_cancelled {
            (vec![Answer::Cancelled], None)
        } else {
            (vec![Answer::Accepted], Some((name, self.accepted)))
        }
    }

    fn replace(
        &mut self,
        name: Name,
        last: Option<&Stored>,
        due_ms: i64,
        payload: u8,
        at_latest_ms: Option<i64>,
    ) -> (Vec<Answer>, Option<Key>) {
        let waits = last.filter(|it| it.end.is_none());
        let first_ms = waits.and_then(|it| it.latest_ms);
        let latest_ms = at_latest_ms.map(|after_ms| first_ms.unwrap_or(self.wall_ms() + after_ms));
        let Some(waits) = waits else { return self.accept(name, due_ms, payload, None, latest_ms) };
        let old = (name, waits.order);
        let life = self.lives.get(&old).copied().unwrap_or_default();
        if life.is_in_flight || life.end.is_some() {
            return (vec![Answer::Delivering], None);
        }
        self.end(old, Outcome::Moved);
        self.lives.insert(old, Life { end: Some(Outcome::Moved), ..Life::default() });
        let (_, new) = self.accept(name, due_ms, payload, None, latest_ms);
        (vec![Answer::Replaced], new)
    }

    /// A second life of a dead letter, which is not told any more if it was not.
    fn requeue(&mut self, name: Name, last: &Stored) -> Key {
        let seq = self.numbers.iter().find(|(_, key)| **key == (name, last.order)).map(|(seq, _)| *seq);
        let source = ("delivery".to_owned(), seq.expect("it was in memory"));
        self.telling.owed.remove(&source);
        self.telling.answered.retain(|it| *it != source);
        self.telling.in_group.retain(|it| *it != source);
        if let Some((_, in_hand)) = &mut self.telling.in_hand {
            in_hand.retain(|it| *it != source);
        }
        self.accepted += 1;
        let key = (name, self.accepted);
        let order = self.accepted;
        let unmoved_ms = last.due_ms;
        let (cause, due_ms) = self.caused_anew(name, last);
        let new = Stored {
            order,
            unmoved_ms,
            cause,
            due_ms,
            expires_ms: None,
            latest_ms: None,
            end: None,
            placed: None,
            ..last.clone()
        };
        self.stored.entry(name).or_default().push(new);
        self.must_be_again.insert(key);
        self.may_be_again.insert(key);
        key
    }

    /// The waiting messages of this key end, except messages in flight.
    pub(super) fn cancel_many(&mut self, key: Option<u8>, through: u64) {
        let open: Vec<Key> = self
            .stored
            .iter()
            .filter(|(name, _)| key.is_none() || name.0 == key)
            .flat_map(|(name, all)| {
                all.iter().filter(|it| it.end.is_none() && it.order <= through).map(|it| (*name, it.order))
            })
            .collect();
        for it in open {
            let life = self.lives.get(&it).copied().unwrap_or_default();
            if !life.is_in_flight && life.end.is_none() {
                self.end(it, Outcome::Cancelled);
                self.lives.insert(it, Life { end: Some(Outcome::Cancelled), ..Life::default() });
            }
        }
    }

    /// The message goes on as the last accepted message of its name, with its attempts.
    fn move_to(&mut self, old: Key, last: &Stored, due_ms: i64) -> Key {
        let was_sent = self.lives.get(&old).is_some_and(|life| life.is_retrying);
        let cause = self.caused_after_move(old, last);
        self.end(old, Outcome::Moved);
        self.lives.insert(old, Life { end: Some(Outcome::Moved), ..Life::default() });
        self.accepted += 1;
        let new = (old.0, self.accepted);
        let goes_on =
            Stored { order: self.accepted, due_ms, was_moved: true, cause, end: None, placed: None, ..last.clone() };
        self.stored.entry(old.0).or_default().push(goes_on);
        if let Some(failures) = self.failures.get(&old).copied() {
            self.failures.insert(new, failures);
        }
        if let Some(since_us) = self.failing_since_us.get(&(None, Some(old))).copied() {
            self.failing_since_us.insert((None, Some(new)), since_us);
        }
        if let Some(first_us) = self.first_failed_us.get(&old).copied() {
            self.first_failed_us.insert(new, first_us);
        }
        if was_sent {
            if self.unanswered.contains(&old) {
                self.must_be_again.insert(new); // the next process has to ask whether it has arrived
            }
            self.may_be_again.insert(new);
        }
        for again in [&mut self.may_be_again, &mut self.must_be_again] {
            if again.contains(&old) {
                again.insert(new);
            }
        }
        new
    }

    pub(super) fn stored_mut(&mut self, (name, order): Key) -> &mut Stored {
        self.stored.get_mut(&name).unwrap().iter_mut().find(|it| it.order == order).unwrap()
    }
}
