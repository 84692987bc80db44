//! Messages that wait for events, at random, beside a model of rule D22. They are cancelled, moved, replaced, refused and tried
//! anew. Events are forgotten, keys are paused, the process ends, memory is short, a group fails, and the clock is stepped.
//!
//! The model says how many messages each event lets go, and with which cause each delivery comes.

use std::collections::BTreeMap;

use super::destinations::set;
use super::events::{caused, event, happens, line};
use super::testing::{ByHand, START_MS, play_seeds};
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::message::events::Event;
use crate::message::incoming::Incoming;
use crate::message::{Cancel, Message, Reschedule, checked};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
use crate::store::Outcome;
use crate::store::replica::tests::memory::InMemory;
use crate::store::sql::failing;

const KEYS: [&str; 2] = ["j", "k"];
const NAMES: [&str; 3] = ["lost", "paid", "seen"];

#[derive(Clone, Debug, PartialEq)]
enum Cause {
    Open,
    Deadline,
    Event(String),
}

#[derive(Clone, Debug)]
struct Waiting {
    due_ms: i64,
    names: Vec<&'static str>,
    cause: Cause,
    /// It may have been sent.
    was_sent: bool,
    is_dead: bool,
}

impl Waiting {
    fn waits(&self) -> bool {
        !self.names.is_empty()
    }
}

#[derive(Default)]
struct Model {
    /// By key and id. Delivered and cancelled messages are not there.
    open: BTreeMap<(String, String), Waiting>,
    /// By key and id: the event, and the count that it was answered with.
    events: BTreeMap<(String, String), (Event, u32)>,
    /// In the order in which they came: the key, the name, the id, and until when it is remembered.
    remembered: Vec<(String, String, String, i64)>,
    next: u32,
    log: Vec<String>,
}

impl Model {
    fn id(&mut self) -> String {
        self.next += 1;
        format!("{}", self.next)
    }

    fn remembered(&self, key: &str, names: &[&'static str], own_ms: i64) -> Option<String> {
        let is_it =
            |it: &&(String, String, String, i64)| it.0 == key && names.contains(&it.1.as_str()) && it.3 > own_ms;
        self.remembered.iter().rev().find(is_it).map(|it| it.2.clone())
    }

    /// A new message comes, or takes the place of another.
    fn comes(&mut self, key: &str, id: &str, mut message: Waiting, now_ms: i64, own_ms: i64) {
        if message.due_ms > now_ms
            && let Some(event) = self.remembered(key, &message.names, own_ms)
        {
            (message.due_ms, message.cause) = (now_ms, Cause::Event(event));
        }
        self.open.insert((key.into(), id.into()), message);
    }

    /// How many messages the event lets go.
    fn happens(&mut self, it: &Event, now_ms: i64, own_ms: i64) -> (Answer, Option<u32>) {
        let name = (it.key.clone(), it.id.clone());
        if let Some((known, count)) = self.events.get(&name) {
            return if known == it { (Answer::LetGo, Some(*count)) } else { (Answer::Conflict, None) };
        }
        let mut count = 0;
        for ((key, _), message) in &mut self.open {
            let is_in_time = message.cause == Cause::Open && message.due_ms > now_ms && !message.was_sent;
            if *key == it.key && is_in_time && !message.is_dead && message.names.contains(&it.event.as_str()) {
                (message.due_ms, message.cause) = (now_ms, Cause::Event(it.id.clone()));
                count += 1;
            }
        }
        self.events.insert(name, (it.clone(), count));
        if let Some(ms) = it.remember_ms {
            self.remembered.push((it.key.clone(), it.event.clone(), it.id.clone(), own_ms + ms));
        }
        (Answer::LetGo, Some(count))
    }

    fn delivered(&mut self, it: &Delivery, now_ms: i64, verdict: &Verdict) {
        let name = (it.body.key().unwrap().to_owned(), it.body.id().to_owned());
        let message = self.open.get_mut(&name).unwrap_or_else(|| panic!("{name:?} is not open: {:#?}", self.log));
        let is_due = message.due_ms <= now_ms && it.due_ms == message.due_ms;
        assert!(is_due, "{name:?} {} {message:?} {:#?}", it.due_ms - START_MS, self.log);
        let cause = match &message.cause {
            _ if !message.waits() => "-".to_owned(),
            Cause::Open | Cause::Deadline => "deadline".to_owned(),
            Cause::Event(id) => format!("event {id}"),
        };
        let line = line(it);
        let id = line.split("\"event\":{").nth(1).and_then(|rest| rest.split("\"id\":\"").nth(1)?.split('"').next());
        let found = caused(it).split_once(' ').unwrap().1.to_owned();
        let found = id.map_or(found.clone(), |id| format!("{found} {id}"));
        assert_eq!(found, cause, "{name:?} {:#?}", self.log);
        message.was_sent = true;
        if *verdict == Verdict::Delivered {
            self.open.remove(&name);
        }
    }
}

struct Play {
    world: ByHand,
    /// The chain of the store, for every second seed.
    chain: InMemory,
    model: Model,
    random: fastrand::Rng,
}

/// The destinations; the first is none.
const TO: [&str; 3] = ["", "x", "y"];

impl Play {
    fn of(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let retry = Retry { max_attempts: 3, waits_ms: vec![500, 15_000], ..Retry::default() };
        let messages = if random.bool() { random.usize(2..12) } else { 1_000 };
        let bounds = Bounds { messages, lane_messages: random.usize(1..6), ..Bounds::default() };
        let chain = InMemory::default();
        let replicate = seed.is_multiple_of(2).then(|| chain.replicate());
        let world = ByHand::open(Settings { retry, replicate, bounds, ..Settings::default() });
        let play = Self { world, chain, model: Model::default(), random };
        play.begin();
        play.world.give(vec![set("x", ""), set("y", "")]);
        play
    }

    fn begin(&self) {
        self.world.engine.take_named(TakesNamed::Some).unwrap();
        self.world.begin();
        self.world.write();
    }

    /// The store's own clock.
    fn own_ms(&self) -> i64 {
        self.world.engine.with_store(|store| store.remembers_until_ms(0))
    }

    fn log(&mut self, what: impl std::fmt::Debug) {
        let now_ms = self.world.wall_ms() - START_MS;
        self.model.log.push(format!("{now_ms}: {what:?}"));
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.usize(0..all.len())].clone()
    }

    fn ask(&mut self, item: Item, expected: Answer) {
        let answers = self.world.give(vec![item]);
        assert_eq!(answers, [expected], "{:#?}", self.model.log);
    }

    /// A message with this name that may wait for events, or for none.
    fn message(&mut self, key: &str, id: &str) -> (Incoming, Waiting) {
        let due_ms = self.world.wall_ms() + self.one_of(&[0, 1, 50, 400, 3_000, 20_000, 86_400_000]);
        let names: Vec<_> = NAMES.into_iter().filter(|_| self.random.u8(0..5) < 3).collect();
        let to = self.one_of(&TO);
        let message = Message { due_ms, ..Message::at(id, std::time::UNIX_EPOCH, "1").json() }.with_key(key);
        let message = if names.is_empty() { message } else { message.until_event(names.iter().copied()) };
        let message = if to.is_empty() { message } else { message.to(to) };
        let waiting = Waiting { due_ms, names, cause: Cause::Open, was_sent: false, is_dead: false };
        (Incoming::of(checked(message, 1_000).unwrap()), waiting)
    }

    /// The name of a message that is no dead letter.
    fn a_name(&mut self, is_dead: bool) -> Option<(String, String)> {
        let open = self.model.open.iter().filter(|(_, it)| it.is_dead == is_dead);
        let names: Vec<_> = open.map(|(name, _)| name.clone()).collect();
        (!names.is_empty()).then(|| self.one_of(&names))
    }

    fn put(&mut self) {
        let (key, id) = (self.one_of(&KEYS), self.model.id());
        let (put, waiting) = self.message(key, &id);
        self.log(("put", key, &id, waiting.due_ms - START_MS, &waiting.names));
        self.ask(Item::Put(put), Answer::Accepted);
        self.model.comes(key, &id, waiting, self.world.wall_ms(), self.own_ms());
    }

    fn replace(&mut self) {
        let Some((key, id)) = self.a_name(false) else { return };
        let (put, waiting) = self.message(&key, &id);
        self.log(("replace", &key, &id, waiting.due_ms - START_MS, &waiting.names));
        self.ask(Item::Replace { put, at_latest_ms: None }, Answer::Replaced);
        self.model.comes(&key, &id, waiting, self.world.wall_ms(), self.own_ms());
    }

    fn happens(&mut self) {
        let known: Vec<_> = self.model.events.values().map(|(event, _)| event.clone()).collect();
        let it = if self.random.u8(0..8) == 0 && !known.is_empty() {
            let again = self.one_of(&known);
            if self.random.bool() { again } else { Event { payload: b"7"[..].into(), ..again } }
        } else {
            let remember_ms = if self.random.u8(0..4) == 0 { Some(self.one_of(&[100, 5_000, 50_000])) } else { None };
            let (key, name) = (self.one_of(&KEYS), self.one_of(&NAMES));
            Event { remember_ms, ..event(key, &self.model.id(), name) }
        };
        self.log(("event", &it.key, &it.id, &it.event, it.remember_ms));
        let expected = self.model.happens(&it, self.world.wall_ms(), self.own_ms());
        let receipt = self.world.submit(vec![happens(it)]);
        self.world.write();
        let answers = receipt.wait(None).unwrap().unwrap();
        let found = (answers.given[0], answers.let_go.first().map(|(_, count)| *count));
        assert_eq!(found, expected, "{:#?}", self.model.log);
    }

    fn forget(&mut self) {
        let known: Vec<_> = self.model.events.keys().cloned().collect();
        if known.is_empty() {
            return;
        }
        let (key, id) = self.one_of(&known);
        self.log(("forget", &key, &id));
        let (own_ms, before) = (self.own_ms(), self.model.remembered.len());
        self.model.remembered.retain(|it| (&it.0, &it.2) != (&key, &id) || it.3 <= own_ms);
        let was_remembered = self.model.remembered.len() < before;
        self.ask(Item::Forget { key, id }, if was_remembered { Answer::Cancelled } else { Answer::Unknown });
    }

    fn cancel(&mut self) {
        let Some(name) = self.a_name(false) else { return };
        self.log(("cancel", &name));
        let cancel = Cancel { key: Some(name.0.clone()), id: name.1.clone(), keep_days: 0 };
        self.ask(Item::Cancel(cancel), Answer::Cancelled);
        self.model.open.remove(&name);
    }

    fn reschedule(&mut self) {
        let Some(name) = self.a_name(false) else { return };
        let now_ms = self.world.wall_ms();
        let due_ms = now_ms + self.one_of(&[0, 50, 3_000, 86_400_000]);
        let it = self.model.open.get_mut(&name).unwrap();
        if it.cause == Cause::Open && (it.due_ms <= now_ms || it.was_sent) {
            it.cause = Cause::Deadline;
        }
        it.due_ms = due_ms;
        self.log(("move", &name, due_ms - START_MS));
        self.ask(Item::Reschedule(Reschedule { key: Some(name.0), id: name.1, due_ms }), Answer::Rescheduled);
    }

    fn requeue(&mut self) {
        let Some(name) = self.a_name(true) else { return };
        self.log(("requeue", &name));
        self.ask(Item::Requeue { id: name.1.clone(), key: Some(name.0.clone()) }, Answer::Requeued);
        let now_ms = self.world.wall_ms();
        let it = self.model.open.get_mut(&name).unwrap();
        it.is_dead = false;
        if it.cause == Cause::Open && it.due_ms <= now_ms {
            it.cause = Cause::Deadline;
        }
    }

    /// Sends what can be sent. `all`: all of it arrives.
    fn send(&mut self, all: bool) {
        self.world.write();
        while let Some((number, deliveries)) = self.world.next_send() {
            let mut verdicts = Vec::new();
            for it in &deliveries {
                let verdict = match self.random.u8(0..if all { 4 } else { 8 }) {
                    0..=3 => Verdict::Delivered,
                    4..=5 => Verdict::Refused("no".into()),
                    _ => Verdict::Failed { reason: "no".into(), retry_after_ms: None },
                };
                self.log((it.body.id(), it.attempt, &verdict));
                self.model.delivered(it, self.world.wall_ms(), &verdict);
                verdicts.push(verdict);
            }
            self.world.engine.settle(number, Verdicts::Each(verdicts), None);
            self.world.write();
        }
        self.look_at_the_store(false);
    }

    /// Which messages are dead letters, and after a crash which may have been sent: nothing of it is predicted here.
    fn look_at_the_store(&mut self, after_crash: bool) {
        for ((key, id), it) in &mut self.model.open {
            self.world.engine.with_store(|store| {
                let known = store.find(Some(key), id).unwrap().unwrap();
                it.is_dead = known.outcome == Some(Outcome::Dead);
                it.was_sent |= after_crash && store.untried((known.due_ms, known.seq)).unwrap().is_none();
            });
        }
    }

    fn restart(mut self) -> Self {
        self.log("restart");
        self.world = self.world.reopen();
        self.chain.check_if_used(&self.world.store());
        self.look_at_the_store(true);
        self.begin();
        self
    }

    fn a_group_fails(&mut self) {
        self.log("a group fails");
        let (key, id) = (self.one_of(&KEYS), self.model.id());
        let (put, waiting) = self.message(key, &id);
        let it = event(key, &self.model.id(), self.random.choice(NAMES).unwrap());
        self.log(("put, event", &id, waiting.due_ms - START_MS, &waiting.names, &it.id, &it.event));
        let receipt = self.world.submit(vec![Item::Put(put), happens(it.clone())]);
        failing::after(self.random.u32(0..40));
        let mut result = Ok(true);
        while matches!(result, Ok(true)) {
            result = self.world.engine.write(&|| Ok(()));
        }
        failing::end();
        if result.is_err() {
            self.world.engine.open_anew(&|| Ok(())).unwrap();
        }
        self.world.write();
        self.look_at_the_store(result.is_err());
        let Ok(answers) = receipt.wait(None).unwrap() else { return }; // nothing of it has happened
        self.model.comes(key, &id, waiting, self.world.wall_ms(), self.own_ms());
        let expected = self.model.happens(&it, self.world.wall_ms(), self.own_ms());
        assert_eq!((answers.given[1], Some(answers.let_go[0].1)), expected, "{:#?}", self.model.log);
    }

    fn advance(&mut self, ms: u64) {
        self.world.advance_ms(ms);
        self.world.write();
        let own_ms = self.own_ms();
        self.model.remembered.retain(|it| it.3 > own_ms); // this clock may go back by a second with the next process
    }

    fn step_clock(&mut self) {
        let ms = self.random.i64(-20_000..20_000);
        self.log(("step", ms));
        self.world.step_wall_clock_ms(ms);
        self.world.engine.follow_clock();
        self.world.write();
    }

    fn pause(&mut self, is_paused: bool) {
        let key = Some(self.one_of(&KEYS).to_owned());
        let item = Item::pause(key, is_paused);
        self.log(&item);
        self.world.give(vec![item]);
    }
}

fn play(seed: u64, is_alone: bool) {
    let mut it = Play::of(seed);
    for step in 0..it.random.usize(20..150) {
        let what = it.random.u8(0..32);
        if is_alone {
            eprintln!("{step}: {what} {:?}", it.model.log.last());
        }
        match what {
            0..=7 => it.put(),
            8..=12 => it.happens(),
            13 => it.forget(),
            14..=15 => it.cancel(),
            16..=17 => it.reschedule(),
            18 => it.replace(),
            19..=20 => it.requeue(),
            21..=24 => it.send(false),
            25..=27 => {
                let ms = it.one_of(&[1, 50, 400, 3_000, 20_000]);
                it.advance(ms);
            }
            28 => it = it.restart(),
            29 => it.step_clock(),
            30 => it.a_group_fails(),
            _ => {
                let is_paused = it.random.bool();
                it.pause(is_paused);
            }
        }
    }
    for key in KEYS {
        it.world.give(vec![Item::pause(Some(key.to_owned()), false)]);
    }
    let mut rounds = 0;
    while it.model.open.values().any(|it| !it.is_dead) {
        rounds += 1;
        assert!(rounds < 20_000, "stuck with {:?}: {:#?}", it.model.open, it.model.log);
        it.send(true);
        it.advance(if rounds < 500 { 100 } else { 10_000 });
    }
    it.world.write();
    let world = it.world.again();
    it.chain.check_if_used(&world.store());
    let left = world.engine.with_store(|store| store.open_count());
    assert_eq!(left, 0, "{:#?}", it.model.log);
}

#[test]
fn whatever_happens_each_message_has_one_cause_and_each_event_its_count__d22() {
    play_seeds(300, play);
}
