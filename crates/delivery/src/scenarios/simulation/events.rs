//! Events, and the messages that wait for them, as the model expects them (D22).
//!
//! A message that may have been sent is too late for an event. Where the model can't know whether it was, its cause is
//! *unclear*, and the store tells it after the commit.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::World;
use super::types::{Asked, Key, Life, Name, Stored, Ticket, text};
use crate::group::items::{Answer, Answers};
use crate::message::events::Event;
use crate::message::until::{self, Until};
use crate::scenarios::events::{caused, line};
use crate::sinks::Delivery;

const NAMES: [&str; 2] = ["a", "b"];
/// The next process may set the store's own clock back by so much.
const BACK_MS: i64 = 2_000;

/// Why a message is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cause {
    Open,
    Deadline,
    Event(u32),
    Unclear,
}

#[derive(Clone, Debug)]
struct Known {
    name: usize,
    remember_ms: Option<i64>,
    /// How many messages it may have let go.
    counts: RangeInclusive<u32>,
    /// The greatest possible age of the store as it came.
    at_ms: i64,
}

#[derive(Clone, Debug)]
struct Remembered {
    key: u8,
    name: usize,
    id: u32,
    /// By the store's own clock.
    until_ms: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    last: u32,
    /// By key and id.
    known: BTreeMap<(u8, u32), Known>,
    /// In the order in which they came.
    remembered: Vec<Remembered>,
    /// The store's own clock in this group.
    own_ms: i64,
}

/// The events that the messages with this name wait for.
fn names_of(name: Name) -> &'static [&'static str] {
    match name {
        (Some(_), 3) => &NAMES[..1],
        (Some(_), 6) => &NAMES[1..],
        (Some(_), 7) => &NAMES,
        _ => &[],
    }
}

pub(super) fn waits(name: Name) -> bool {
    !names_of(name).is_empty()
}

pub(super) fn until(name: Name) -> Option<Box<Until>> {
    waits(name).then(|| Box::new(Until { names: names_of(name).join(" ").into(), cause: until::Cause::Open }))
}

pub(super) fn event_of(key: u8, name: usize, id: u32, remember_ms: Option<i64>) -> Event {
    let event = Event { remember_ms, ..Event::of(&format!("k{key}"), &id.to_string(), NAMES[name]) };
    event.checked(100).unwrap()
}

impl Stored {
    fn let_go(&mut self, cause: Cause, now_ms: i64) {
        (self.cause, self.due_ms, self.placed) = (cause, now_ms, None);
        if !self.was_moved {
            self.unmoved_ms = now_ms;
        }
    }
}

impl World {
    pub(super) fn ask_event(&mut self) -> Asked {
        let known: Vec<(u8, u32)> = self.events.known.keys().copied().collect();
        let key = self.random.below(3) as u8;
        let (key, id) = match self.random.below(6) {
            0 if !known.is_empty() => known[self.random.below(known.len() as u64) as usize],
            _ => {
                self.events.last += 1;
                (key, self.events.last)
            }
        };
        if self.random.below(8) == 0 {
            return Asked::Forget { key, id };
        }
        let remember_ms = (self.random.below(4) == 0).then(|| 1 + self.random.below(8_000) as i64);
        let name = self.random.below(2) as usize;
        let known = self.events.known.get(&(key, id)).filter(|_| self.random.0.bool());
        let (name, remember_ms) = known.map_or((name, remember_ms), |it| (it.name, it.remember_ms));
        Asked::Event { key, id, name, remember_ms }
    }

    /// A group is about to be committed: what the store still knows.
    pub(super) fn begin_events(&mut self, tickets: &[Ticket]) {
        self.events.own_ms = self.engine.with_store(|store| store.remembers_until_ms(0));
        for asked in tickets.iter().flat_map(|it| &it.asked) {
            let Asked::Event { key, id, .. } = *asked else { continue };
            let is_known = self.engine.with_store(|store| store.known_event(&format!("k{key}"), &id.to_string()));
            if is_known.unwrap().is_some() {
                assert!(self.events.known.contains_key(&(key, id)), "the event {id} never came");
            } else if let Some(known) = self.events.known.remove(&(key, id)) {
                let keep_ms = self.settings.keep_ids_ms as i64;
                assert!(self.age_ms - known.at_ms >= keep_ms, "the event {id} was forgotten too early");
            }
        }
    }

    /// The event is on disk. Returns its correct answers and counts, and the messages that it certainly lets go.
    pub(super) fn happens(
        &mut self,
        (key, id): (u8, u32),
        name: usize,
        remember_ms: Option<i64>,
    ) -> (Vec<Answer>, RangeInclusive<u32>, Vec<Key>) {
        let keep_ms = self.settings.keep_ids_ms as i64;
        let known = self.events.known.get(&(key, id)).cloned();
        let may_be_forgotten = known.as_ref().is_some_and(|it| self.age_ms - it.at_ms >= keep_ms);
        let is_same = known.as_ref().is_none_or(|it| (it.name, it.remember_ms) == (name, remember_ms));
        let mut answers = vec![if is_same { Answer::LetGo } else { Answer::Conflict }];
        if let Some(it) = &known {
            if !may_be_forgotten {
                return (answers, it.counts.clone(), Vec::new());
            }
            answers.push(Answer::LetGo);
        }
        let (mut least, mut most, mut gone) = (0, 0, Vec::new());
        let now_ms = self.wall_ms();
        let open = self.stored.iter().filter(|(of, _)| of.0 == Some(key) && names_of(**of).contains(&NAMES[name]));
        let open: Vec<Key> = open.filter_map(|(of, all)| Some((*of, all.last()?.order))).collect();
        for of in open {
            let it = self.stored_mut(of).clone();
            let life = self.lives.get(&of).copied().unwrap_or_default();
            let is_too_late = it.due_ms <= now_ms || life.is_in_flight || life.end.is_some();
            if it.end.is_some() || !matches!(it.cause, Cause::Open | Cause::Unclear) {
                continue;
            }
            let may_have_been_sent = self.may_have_been_sent(of);
            if it.cause == Cause::Open && (is_too_late || may_have_been_sent == Some(true)) {
                continue;
            }
            most += 1;
            if it.cause == Cause::Unclear || may_have_been_sent.is_none() || may_be_forgotten {
                self.stored_mut(of).cause = Cause::Unclear;
                continue;
            }
            least += 1;
            self.stored_mut(of).let_go(Cause::Event(id), now_ms);
            gone.push(of);
        }
        let counts = match &known {
            Some(it) => 0..=most.max(*it.counts.end()),
            None => least..=most,
        };
        let at_ms = known.map_or(self.age_ms, |it| it.at_ms);
        self.events.known.insert((key, id), Known { name, remember_ms, counts: counts.clone(), at_ms });
        if let Some(ms) = remember_ms {
            let until_ms = self.events.own_ms + ms.min(keep_ms);
            self.events.remembered.push(Remembered { key, name, id, until_ms });
        }
        (answers, counts, gone)
    }

    pub(super) fn forget_event(&mut self, of: (u8, u32)) -> Vec<Answer> {
        let own_ms = self.events.own_ms;
        let is_it = |it: &Remembered| (it.key, it.id) == of;
        let is_known_since = self.events.known.get(&of).map(|it| it.at_ms);
        let keep_ms = self.settings.keep_ids_ms as i64;
        let may_be_two = is_known_since.is_some_and(|at_ms| self.age_ms - at_ms >= keep_ms);
        let all: Vec<i64> = self.events.remembered.iter().filter(|it| is_it(it)).map(|it| it.until_ms).collect();
        self.events.remembered.retain(|it| !is_it(it));
        if may_be_two || all.iter().any(|until_ms| (own_ms - until_ms).abs() <= BACK_MS) {
            return vec![Answer::Cancelled, Answer::Unknown];
        }
        vec![if all.iter().any(|until_ms| *until_ms > own_ms) { Answer::Cancelled } else { Answer::Unknown }]
    }

    /// Why a message is due that is accepted at this moment; and since when.
    pub(super) fn caused_at_once(&self, name: Name, due_ms: i64) -> (Cause, i64) {
        let (own_ms, now_ms) = (self.events.own_ms, self.wall_ms());
        if due_ms <= now_ms || !waits(name) {
            return (Cause::Open, due_ms);
        }
        let concerns = |it: &&Remembered| Some(it.key) == name.0 && names_of(name).contains(&NAMES[it.name]);
        for it in self.events.remembered.iter().rev().filter(concerns) {
            // It may have come twice, if it is as old as names are kept.
            let is_one = self.events.remembered.iter().filter(|other| other.id == it.id).count() == 1;
            let left_ms = it.until_ms - own_ms;
            match (left_ms > BACK_MS, left_ms < -BACK_MS) {
                (_, true) => {}
                (true, _) if is_one => return (Cause::Event(it.id), now_ms),
                _ => return (Cause::Unclear, due_ms),
            }
        }
        (Cause::Open, due_ms)
    }

    /// Why a message is due that is moved.
    pub(super) fn caused_after_move(&self, of: Key, it: &Stored) -> Cause {
        match (it.cause, self.may_have_been_sent(of)) {
            (Cause::Open, _) if it.due_ms <= self.wall_ms() => Cause::Deadline,
            (Cause::Open, Some(true)) => Cause::Deadline,
            (Cause::Open, None) if waits(of.0) => Cause::Unclear,
            (cause, _) => cause,
        }
    }

    /// `None`: the model does not know.
    fn may_have_been_sent(&self, of: Key) -> Option<bool> {
        let failures = self.failures.get(&of).copied().unwrap_or_default();
        if failures.made > 0 {
            return Some(true);
        }
        let is_known = failures.made_maybe > 0 || self.may_be_again.contains(&of) || self.must_be_again.contains(&of);
        (!is_known).then_some(false)
    }

    /// The group is on disk: the store tells what was unclear. Returns the messages that were let go.
    pub(super) fn learn_causes(&mut self) -> Vec<Key> {
        let now_ms = self.wall_ms();
        let last = self.stored.iter().filter_map(|(name, all)| Some((*name, all.last()?)));
        let unclear: Vec<(Name, Stored)> = last
            .filter(|(_, it)| it.cause == Cause::Unclear && it.end.is_none())
            .map(|(name, it)| (name, it.clone()))
            .collect();
        let mut gone = Vec::new();
        for (name, it) in unclear {
            let (key, id) = text(name);
            let (known, found) = self.engine.with_store(|store| {
                let known = store.find(key.as_deref(), &id).unwrap().expect("it is open");
                let body = store.bodies(&[known.seq]).unwrap().remove(&known.seq).expect("it is open");
                (known.due_ms, body.body.until().expect("it waits").cause.clone())
            });
            let of = (name, it.order);
            let cause = match found {
                until::Cause::Open => Cause::Open,
                until::Cause::Deadline => Cause::Deadline,
                until::Cause::Event(_, data) => {
                    let value: serde_json::Value = serde_json::from_str(&data).unwrap();
                    let id: u32 = value["id"].as_str().unwrap().parse().unwrap();
                    let by = &self.events.known[&(name.0.unwrap(), id)];
                    assert!(names_of(name).contains(&NAMES[by.name]), "{of:?} was let go by another event");
                    Cause::Event(id)
                }
            };
            let was_let_go = matches!(cause, Cause::Event(_)) && known != it.due_ms;
            assert!(known == it.due_ms || was_let_go && known == now_ms, "{of:?} is due at {known}");
            if was_let_go {
                self.stored_mut(of).let_go(cause, known);
                self.lives.insert(of, Life::default());
                gone.push(of);
            } else {
                self.stored_mut(of).cause = cause;
            }
        }
        gone
    }

    /// At the end the store knows no event any more.
    pub(super) fn check_events_are_forgotten(&self) {
        self.engine.with_store(|store| {
            for (key, id) in self.events.known.keys() {
                let known = store.known_event(&format!("k{key}"), &id.to_string()).unwrap();
                assert!(known.is_none(), "the event {id} is known for ever");
            }
        });
    }

    /// A dead letter is tried anew.
    pub(super) fn caused_anew(&self, name: Name, it: &Stored) -> (Cause, i64) {
        if it.cause != Cause::Open {
            return (it.cause, it.due_ms);
        }
        match self.caused_at_once(name, it.due_ms) {
            (Cause::Open, due_ms) => (Cause::Deadline, due_ms), // it may have arrived
            it => it,
        }
    }
}

pub(super) fn check_cause(delivery: &Delivery, key: Key, it: &Stored) {
    let found = caused(delivery).rsplit(' ').next().unwrap().to_owned();
    let line = line(delivery);
    let id = line.split("\"event\":{").nth(1).and_then(|rest| rest.split("\"id\":\"").nth(1)?.split('"').next());
    let expected = match it.cause {
        _ if !waits(key.0) => ("-", None),
        Cause::Event(id) => ("event", Some(id.to_string())),
        _ => ("deadline", None),
    };
    assert_eq!((found.as_str(), id.map(str::to_owned)), expected, "{key:?}");
}

/// Of a ticket that was answered.
pub(super) fn check_counts(ticket: &Ticket, answers: &Answers) {
    let found: BTreeMap<usize, u32> = answers.let_go.iter().copied().collect();
    let asked = ticket.asked.iter().filter(|it| !matches!(it, Asked::Bad(_))).enumerate();
    let events = asked.filter(|(_, it)| matches!(it, Asked::Event { .. })).map(|(place, _)| place);
    for (place, expected) in events.zip(&ticket.let_go) {
        let count = found.get(&place);
        let is_conflict = answers.given[place] == Answer::Conflict;
        assert!(is_conflict || count.is_some_and(|it| expected.contains(it)), "{count:?}, expected {expected:?}");
    }
}
