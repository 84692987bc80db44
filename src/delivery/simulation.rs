//! The engine under deterministic simulation: one seed decides the clock, what is submitted, what the sink answers, crashes,
//! and the order of all steps. A slow model says what has to follow (rules D3 to D9).
//!
//! ```text
//! TICKWHEEL_SEEDS=100000 cargo test --release --features delivery simulation     # `make soak`
//! TICKWHEEL_SEED=4711 cargo test --features delivery simulation -- --nocapture   # one seed again, step by step
//! ```
//!
//! The model knows what is on disk: a group takes all that was submitted and settled when it begins, and is on disk as a
//! whole or not at all.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::dispatcher::Event;
use super::engine::Engine;
use super::error::DeliveryError;
use super::incoming::Incoming;
use super::items::{Answer, Item, Receipt};
use super::message::{Body, Cancel, Message};
use super::retry::Retry;
use super::settings::Settings;
use super::sinks::{Delivery, Sink, Turns, Verdict, Verdicts};
use super::store::owner::Ownership;
use super::store::{Letter, Limits, Outcome};
use super::testing::folder_in_memory;
use super::window::{Bounds, State};
use super::writer::{Begun, Committed};
use crate::Clock;

const START_MS: i64 = 1_700_000_000_000;
const STEPS: usize = 150;
const MAX_ATTEMPTS: u32 = 3;

/// The key and id of a message.
type Name = (Option<u8>, u8);
/// A message: its name, and the number of its acceptance.
type Key = (Name, u64);

/// A message that is on disk.
#[derive(Clone, Debug)]
struct Stored {
    order: u64,
    due_ms: i64,
    payload: u8,
    end: Option<Outcome>,
    /// How old the store was at most when that was committed.
    end_at_ms: i64,
    /// Its ticket was answered then, so it is on the timer.
    placed: Option<u64>,
}

#[derive(Clone, Debug)]
enum Asked {
    Put {
        name: Name,
        due_ms: i64,
        payload: u8,
    },
    Cancel(Name),
    Look(Name),
    /// A record that could not be read.
    Bad(i64),
}

/// What happened to a message since the process began.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    is_in_flight: bool,
    is_retrying: bool,
    /// Not on disk yet.
    end: Option<Outcome>,
    /// It left its lane then: what is placed later does not go before it.
    left_lane: Option<u64>,
}

struct Ticket {
    asked: Vec<Asked>,
    receipt: Receipt,
    expected: Vec<Vec<Answer>>,
    accepted: Vec<Key>,
}

struct Flight {
    number: u64,
    messages: Vec<Key>,
    seqs: Vec<i64>,
    /// Of a sink that sends one after another, and the place of the first of these messages.
    turns: Option<Arc<Turns>>,
    first: usize,
    has_begun: bool,
}

/// Where a dead letter came from: the input or the number of a message.
type Source = (String, i64);

/// What the program was told, until that is on disk.
#[derive(Default)]
struct Telling {
    /// On disk, and not told yet.
    owed: BTreeSet<Source>,
    /// Told, and not answered.
    in_hand: Option<(i64, Vec<Source>)>,
    answered: Vec<Source>,
    in_group: Vec<Source>,
    /// That they were told is on disk.
    over: BTreeSet<Source>,
}

struct World {
    random: Random,
    is_shown: bool,
    store: PathBuf,
    settings: Settings,
    wall_us: Arc<AtomicI64>,
    engine: Engine,
    submitted: Vec<Ticket>,
    begun: Option<(Begun, Vec<Ticket>)>,
    committed: Option<(Committed, Vec<Ticket>)>,
    stored: BTreeMap<Name, Vec<Stored>>,
    /// Of messages that did not come, and how old the store was then at most.
    cancels: BTreeMap<Name, i64>,
    accepted: u64,
    /// What the destination keeps of what it was sent, in order, if it keeps that.
    log: Option<Vec<i64>>,
    telling: Telling,
    bad: i64,
    /// How old the store is by its own clock at most, and by how much the wall clock was stepped ahead since it was opened.
    age_ms: i64,
    ahead_ms: i64,
    largest: usize,
    /// The wall clock was stepped, and the engine was not told.
    is_off: bool,
    lives: BTreeMap<Key, Life>,
    numbers: BTreeMap<i64, Key>,
    flights: VecDeque<Flight>,
    /// Failures of the message's own, and sends that ended without an answer about it.
    failures: BTreeMap<Key, (u32, u32)>,
    crashes: u32,
    moment: u64,
    may_be_again: BTreeSet<Key>,
    must_be_again: BTreeSet<Key>,
    is_healed: bool,
}

struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.u64(0..end)
    }
}

/// What a destination tells of what it was sent: the tail of its log, from a position on.
struct Destination {
    log: Option<Vec<i64>>,
    asked: Vec<i64>,
    arrived: Vec<i64>,
}

impl Sink for Destination {
    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        unreachable!("the world sends")
    }

    fn position(&self) -> Option<String> {
        self.log.as_ref().map(|log| log.len().to_string())
    }

    fn arrived(&mut self, suspects: &[Delivery], position: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
        self.asked.extend(suspects.iter().map(|it| it.seq));
        let Some(log) = &self.log else { return Ok(Vec::new()) };
        let from: usize = position.map_or(0, |text| text.parse().unwrap());
        let arrived: Vec<i64> = suspects.iter().map(|it| it.seq).filter(|seq| log[from..].contains(seq)).collect();
        self.arrived.extend(&arrived);
        Ok(arrived)
    }
}

macro_rules! show {
    ($world:expr, $($text:tt)*) => {
        if $world.is_shown {
            eprintln!($($text)*);
        }
    };
}

impl World {
    fn new(seed: u64, folder: &Path, is_shown: bool) -> Self {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let messages = 3 + random.below(12) as usize;
        // Messages may be larger than what may be in memory.
        let least_bytes = [250, 2_000][random.below(2) as usize];
        let keep_ids_ms = if random.below(2) == 0 { 2_000 + random.below(20_000) } else { 7 * 86_400_000 };
        let settings = Settings {
            is_global: random.below(6) == 0,
            horizon_ms: 200 + random.below(2_000),
            retry: Retry { max_attempts: MAX_ATTEMPTS, first_ms: 100, longest_ms: 1_000 },
            sink_timeout_ms: 2_000,
            bounds: Bounds {
                messages,
                bytes: least_bytes + random.below(20_000) as usize,
                lane_messages: 1 + random.below(4) as usize,
                lane_bytes: least_bytes / 2 + random.below(3_000) as usize,
            },
            keep_ids_ms,
            seed,
            limits: Limits::tiny(),
            ..Settings::default()
        };
        let store = folder.join(format!("{seed}.db"));
        let wall_us = Arc::new(AtomicI64::new(START_MS * 1000));
        let engine = open(&store, &settings, &wall_us, 5_000_000);
        let log = (random.below(3) == 0).then(Vec::new);
        let mut world = Self {
            random,
            is_shown,
            store,
            settings,
            wall_us,
            engine,
            submitted: Vec::new(),
            begun: None,
            committed: None,
            stored: BTreeMap::new(),
            cancels: BTreeMap::new(),
            accepted: 0,
            log,
            telling: Telling::default(),
            bad: 0,
            age_ms: 0,
            ahead_ms: 0,
            largest: 0,
            is_off: false,
            lives: BTreeMap::new(),
            numbers: BTreeMap::new(),
            flights: VecDeque::new(),
            failures: BTreeMap::new(),
            crashes: 0,
            moment: 0,
            may_be_again: BTreeSet::new(),
            must_be_again: BTreeSet::new(),
            is_healed: false,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let suspects = self.engine.with_store(|store| store.suspects()).unwrap();
        show!(self, "suspects {:?}", suspects.iter().map(|it| it.seq).collect::<Vec<_>>());
        let mut sink = Destination { log: self.log.clone(), asked: Vec::new(), arrived: Vec::new() };
        self.engine.recover(&mut sink).unwrap();
        for seq in sink.arrived {
            self.end(self.numbers[&seq], Outcome::Delivered);
        }
        self.engine.start(self.engine.wall_clock());
        self.is_off = false;
        self.check_summary();
    }

    /// What came in went out, or is there (D11).
    fn check_summary(&self) {
        let it = self.engine.summary();
        let open = self.engine.open_count();
        assert_eq!(it.resumed + it.accepted, it.delivered + it.cancelled + it.undeliverable + open, "{it:?}");
        assert_eq!(it.not_delivered(), open);
        let expected = self.stored.values().flatten().filter(|it| it.end.is_none()).count() as u64;
        assert_eq!(open, expected, "messages are open");
    }

    fn wall_ms(&self) -> i64 {
        self.wall_us.load(Ordering::Relaxed) / 1000
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.submit(),
            22..34 => self.write_a_part(),
            34..46 => self.write(),
            46..62 => self.take(),
            62..76 => self.settle(),
            76..90 => self.advance(),
            90..92 => self.step_wall_clock(),
            92..94 => self.tell_some(),
            94..97 => self.pump(),
            97 => self.reopen(),
            _ => self.crash(),
        }
        let (messages, bytes) = self.engine.in_memory();
        assert!(messages <= self.settings.bounds.messages.max(1), "{messages} messages in memory");
        assert!(bytes <= self.settings.bounds.bytes.max(self.largest), "{bytes} bytes in memory");
    }

    fn submit(&mut self) {
        let asked: Vec<Asked> = (0..=self.random.below(4)).map(|_| self.ask()).collect();
        show!(self, "submit {asked:?}");
        let items: Vec<Item> = asked.iter().map(item).collect();
        self.largest = items.iter().map(Item::size).max().unwrap_or(0).max(self.largest);
        let receipt = self.engine.submit(items).unwrap();
        self.submitted.push(Ticket { asked, receipt, expected: Vec::new(), accepted: Vec::new() });
    }

    fn ask(&mut self) -> Asked {
        let key = self.random.below(4);
        let name = ((key < 3).then_some(key as u8), self.random.below(8) as u8);
        match self.random.below(10) {
            0..2 => Asked::Cancel(name),
            2 if self.random.below(4) == 0 => {
                self.bad += 1;
                Asked::Bad(self.bad)
            }
            2 => Asked::Look(name),
            _ => {
                let after_ms = match self.random.below(4) {
                    0 => -(self.random.below(50) as i64),
                    1 => self.random.below(20) as i64,
                    2 => self.random.below(500) as i64,
                    _ => self.random.below(4_000) as i64,
                };
                // Due times meet, and a second message with a name is often the same again.
                let due_ms = (self.wall_ms() + after_ms) / 10 * 10;
                let payload = self.random.below(20) as u8;
                let last = self.stored.get(&name).and_then(|all| all.last()).filter(|_| self.random.below(2) == 0);
                let (due_ms, payload) = last.map_or((due_ms, payload), |it| (it.due_ms, it.payload));
                Asked::Put { name, due_ms, payload }
            }
        }
    }

    /// The number of this moment.
    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Notes which messages left their lanes without being sent: they wait for a mark to be on disk.
    fn observe(&mut self) {
        let moment = self.moment();
        let mut left = Vec::new();
        let dispatcher = self.engine.lock_dispatcher();
        for (_, entry) in dispatcher.window.slots() {
            let Some(body) = &entry.body else { continue };
            let name = name_of(body);
            let key = (name, self.stored[&name].last().unwrap().order);
            self.numbers.insert(entry.seq, key);
            if entry.state == State::Retrying {
                left.push(key);
            }
            if matches!(entry.state, State::Ready | State::Sending | State::Retrying) {
                self.may_be_again.insert(key); // it is marked where the cursor goes back behind it
            }
        }
        drop(dispatcher);
        for key in left {
            self.lives.entry(key).or_default().left_lane.get_or_insert(moment);
        }
    }

    // --- The writer ----------------------------------------------------------

    fn write_a_part(&mut self) {
        if self.committed.is_some() {
            self.publish();
        } else if self.begun.is_some() {
            self.commit();
        } else {
            self.begin();
        }
    }

    fn write(&mut self) {
        self.write_a_part();
        while self.begun.is_some() || self.committed.is_some() {
            self.write_a_part();
        }
    }

    fn begin(&mut self) {
        show!(self, "begin");
        let begun = self.engine.begin_group().unwrap();
        self.telling.in_group = std::mem::take(&mut self.telling.answered);
        self.begun = Some((begun, std::mem::take(&mut self.submitted)));
    }

    fn commit(&mut self) {
        let (begun, mut tickets) = self.begun.take().unwrap();
        show!(self, "commit");
        let before = (self.stored.clone(), self.telling.owed.clone());
        for done in begun.done() {
            let key = self.numbers[&done.seq];
            let life = self.lives[&key];
            assert_eq!(life.end, Some(done.outcome).filter(|_| life.end.is_some()), "{key:?}");
            if done.outcome == Outcome::Dead {
                self.telling.owed.insert(("delivery".to_owned(), done.seq));
            }
            self.end(key, done.outcome);
        }
        if begun.has_outcomes() && self.random.below(50) == 0 {
            return self.fail_to_sync(begun, tickets, before);
        }
        self.telling.over.extend(std::mem::take(&mut self.telling.in_group));
        for name in tickets.iter().flat_map(|it| &it.asked).filter_map(name_asked) {
            self.look_whether_forgotten(name);
        }
        for ticket in &mut tickets {
            for asked in ticket.asked.clone() {
                if let Asked::Bad(line) = asked {
                    self.telling.owed.insert(("input".to_owned(), line));
                    continue;
                }
                let (expected, key) = self.apply(&asked);
                ticket.expected.push(expected);
                ticket.accepted.extend(key);
            }
        }
        let committed = self.engine.commit_group(begun, &|| Ok(())).unwrap();
        self.committed = Some((committed, tickets));
    }

    /// What the destination was sent is not durable: nothing of the group is committed, and the process ends.
    fn fail_to_sync(
        &mut self,
        begun: Begun,
        tickets: Vec<Ticket>,
        before: (BTreeMap<Name, Vec<Stored>>, BTreeSet<Source>),
    ) {
        show!(self, "the destination could not sync");
        (self.stored, self.telling.owed) = before;
        let error = DeliveryError::Failed("it is full".to_owned());
        assert!(self.engine.commit_group(begun, &|| Err(error.clone())).is_err());
        for ticket in tickets.into_iter().chain(std::mem::take(&mut self.submitted)) {
            assert!(ticket.receipt.wait(Some(Duration::ZERO)).expect("the engine failed").is_err());
        }
        assert!(self.engine.submit(Vec::new()).is_err(), "it takes nothing more");
        self.crash();
    }

    /// What is known is forgotten `keep_ids` after its outcome, and not sooner (D5).
    fn look_whether_forgotten(&mut self, name: Name) {
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

    fn publish(&mut self) {
        let (committed, tickets) = self.committed.take().unwrap();
        show!(self, "publish");
        self.engine.publish_group(&committed).unwrap();
        for ticket in tickets {
            let answers = ticket.receipt.wait(Some(Duration::ZERO)).expect("the group is on disk").unwrap();
            let asked: Vec<&Asked> = ticket.asked.iter().filter(|it| name_asked(it).is_some()).collect();
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

    fn stored_mut(&mut self, (name, order): Key) -> &mut Stored {
        self.stored.get_mut(&name).unwrap().iter_mut().find(|it| it.order == order).unwrap()
    }

    fn end(&mut self, key: Key, outcome: Outcome) {
        let age_ms = self.age_ms;
        let stored = self.stored_mut(key);
        assert_eq!(stored.end, None, "{key:?} ended twice");
        stored.end = Some(outcome);
        stored.end_at_ms = age_ms;
    }

    /// What this does once it is on disk, and the answers that are right.
    fn apply(&mut self, asked: &Asked) -> (Vec<Answer>, Option<Key>) {
        let name = name_asked(asked).expect("it has an answer");
        let last = self.stored.get(&name).and_then(|all| all.last()).cloned();
        let answer = match (asked, last) {
            (Asked::Put { due_ms, payload, .. }, last) => {
                if let Some(last) = last.filter(|it| it.end != Some(Outcome::Dead)) {
                    return (vec![again(&last, *due_ms, *payload)], None);
                }
                self.accepted += 1;
                let was_cancelled = self.cancels.remove(&name).is_some();
                let end = was_cancelled.then_some(Outcome::Cancelled);
                let (order, due_ms, payload) = (self.accepted, *due_ms, *payload);
                let new = Stored { order, due_ms, payload, end, end_at_ms: self.age_ms, placed: None };
                self.stored.entry(name).or_default().push(new);
                if was_cancelled {
                    return (vec![Answer::Cancelled], None);
                }
                return (vec![Answer::Accepted], Some((name, self.accepted)));
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
                    _ => return (vec![Answer::Waiting, Answer::Delivering], None),
                }
            }
        };
        (vec![answer], None)
    }

    // --- The senders ---------------------------------------------------------

    fn take(&mut self) {
        let most = 1 + self.random.below(5) as usize;
        let was_down = self.engine.down().is_some();
        let before = self.outcomes();
        self.engine.take_events();
        let taken = self.engine.take(most, 1 << 20, true);
        // Then all that is due was placed anew, and goes out next.
        let events = self.engine.take_events();
        let was_stepped = events.contains(&Event::ClockStepped);
        let came_up = events.iter().any(|event| matches!(event, Event::Up { .. }));
        self.observe();
        self.hear_cut_offs(before);
        if taken.as_ref().is_none_or(|(_, deliveries)| deliveries.len() < most) && !was_down && !was_stepped {
            self.check_on_time();
        }
        let Some((number, deliveries)) = taken else { return };
        show!(self, "take {number}: {:?} at {}", deliveries.iter().map(shown).collect::<Vec<_>>(), self.wall_ms());
        assert!(!was_down || came_up || deliveries.len() == 1, "more than one probe");
        let messages = deliveries.iter().map(|delivery| self.check_send(delivery)).collect();
        let seqs = deliveries.iter().map(|it| it.seq).collect();
        let is_in_turn = self.random.below(3) == 0 && self.log.is_none(); // such a sink has no position
        let turns = is_in_turn.then(|| self.engine.lock_dispatcher().in_turn(number));
        self.flights.push_back(Flight { number, messages, seqs, turns, first: 0, has_begun: false });
    }

    /// Nothing that is due, on the timer and first in a lane that is free is left behind (D3).
    fn check_on_time(&self) {
        let now_us = self.engine.clock().now_us();
        let dispatcher = self.engine.lock_dispatcher();
        if self.is_off || dispatcher.wants_mark || dispatcher.down().is_some() || self.engine.queue.is_behind(now_us) {
            return;
        }
        for (slot, it) in dispatcher.window.slots() {
            let lane = it.lane.map(|lane| dispatcher.window.lane(lane));
            let is_next = lane.is_none_or(|lane| lane.is_free() && lane.first().is_some_and(|first| first.1 == slot));
            let is_late = it.due_ms <= self.wall_ms() && matches!(it.state, State::Waiting | State::Ready);
            assert!(!is_next || !is_late, "at {}: {it:?} is due; {dispatcher:?}", self.wall_ms());
        }
    }

    fn check_send(&mut self, delivery: &Delivery) -> Key {
        let name = name_of(&delivery.body);
        let has_arrived = self.log.as_ref().is_some_and(|log| log.contains(&delivery.seq));
        assert!(!has_arrived, "{name:?} was sent again to a destination that has it");
        let stored = self.stored.get(&name).and_then(|all| all.last()).expect("it was accepted").clone();
        let key = (name, stored.order);
        assert_eq!(stored.end, None, "{key:?} was sent after its outcome was on disk");
        assert_eq!(delivery.body.payload(), payload(stored.payload));
        assert_eq!(delivery.due_ms, stored.due_ms);
        assert!(self.wall_ms() >= stored.due_ms, "{key:?} is early");
        let moment = self.moment();
        let life = self.lives.entry(key).or_default();
        assert!(!life.is_in_flight && life.end.is_none(), "{key:?} was sent twice: {life:?}");
        let left_lane = life.left_lane.unwrap_or(moment);
        *life = Life { is_in_flight: true, left_lane: Some(left_lane), ..Life::default() };
        self.numbers.insert(delivery.seq, key);
        let (own, unanswered) = self.failures.get(&key).copied().unwrap_or_default();
        assert!(delivery.attempt > own, "{key:?}: attempt {} after {own} refusals", delivery.attempt);
        assert!(delivery.attempt <= 1 + own + unanswered + self.crashes, "{key:?}: attempt {}", delivery.attempt);
        assert!(delivery.attempt <= MAX_ATTEMPTS);
        if delivery.redelivered {
            // It may be what ends the process, which must not go on for ever.
            let kept = self.engine.with_store(|store| store.attempts(delivery.seq)).unwrap();
            assert!(kept.is_some_and(|kept| kept.attempts >= delivery.attempt), "{key:?}: the attempt is not on disk");
        }
        assert!(delivery.redelivered || !self.must_be_again.contains(&key), "{key:?} is not marked");
        assert!(!delivery.redelivered || self.may_be_again.contains(&key), "{key:?} is marked without need");
        self.check_order(key, &stored, left_lane);
        key
    }

    /// Of its lane nothing else is on its way, and nothing that comes before it waits.
    fn check_order(&self, key: Key, it: &Stored, left_lane: u64) {
        if key.0.0.is_none() && !self.settings.is_global {
            return;
        }
        for (name, all) in &self.stored {
            if !self.settings.is_global && name.0 != key.0.0 {
                continue;
            }
            for other in all {
                let other_key = (*name, other.order);
                if other_key == key {
                    continue;
                }
                let life = self.lives.get(&other_key).copied().unwrap_or_default();
                assert!(!life.is_in_flight && !life.is_retrying, "{key:?} was sent while {other_key:?} is on its way");
                let is_before = (other.due_ms, other.order) < (it.due_ms, it.order);
                let waits = other.end.is_none() && life.end != Some(Outcome::Delivered);
                let waits = waits && other.placed.is_some_and(|placed| placed <= left_lane);
                assert!(!is_before || !waits, "{key:?} was sent before {other_key:?}");
            }
        }
    }

    fn settle(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let place = self.random.below(self.flights.len() as u64) as usize;
        let flight = self.flights.remove(place).unwrap();
        if let Some(turns) = flight.turns.clone() {
            return self.turn(flight, &turns);
        }
        if !self.engine.is_in_flight(flight.number) {
            self.engine.settle(flight.number, Verdicts::Delivered, None); // the answer of a send that was cut off
            return;
        }
        let kind = if self.is_healed { 0 } else { self.random.below(8) };
        let verdicts: Vec<Verdict> = flight.messages.iter().map(|_| self.verdict(kind)).collect();
        show!(self, "settle {}: {verdicts:?}", flight.number);
        for (key, verdict) in flight.messages.iter().zip(&verdicts) {
            self.note(*key, verdict);
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

    /// A sink that sends one after another begins the next, or has an answer to the one in hand.
    fn turn(&mut self, mut flight: Flight, turns: &Turns) {
        let is_heard = self.engine.is_in_flight(flight.number);
        if !flight.has_begun && turns.begin().is_some() {
            assert!(is_heard, "it was cut off");
            flight.has_begun = true;
            self.flights.push_back(flight);
            return;
        }
        let mut last = None;
        if flight.has_begun && is_heard {
            let kind = if self.is_healed { 0 } else { self.random.below(8) };
            let verdict = self.verdict(kind);
            if verdict == Verdict::Delivered {
                turns.ended();
                flight.has_begun = false;
                self.flights.push_back(flight);
                return;
            }
            last = Some(verdict);
        }
        show!(self, "turns of {} end: {} arrived, {last:?}", flight.number, turns.arrived());
        if is_heard {
            self.note_turns(&flight, turns, last.clone());
        }
        let before = self.outcomes();
        self.engine.settle_turns(flight.number, last);
        self.hear_the_dead(before);
    }

    /// Of the messages that are left to this send.
    fn note_turns(&mut self, flight: &Flight, turns: &Turns, last: Option<Verdict>) {
        let arrived = turns.arrived() - flight.first;
        let verdicts = std::iter::repeat_n(Verdict::Delivered, arrived).chain(last);
        for (key, verdict) in flight.messages.iter().zip(verdicts.chain(std::iter::repeat(Verdict::NotTried))) {
            self.note(*key, &verdict);
        }
    }

    /// Where the engine took away what had not begun, those before have arrived, and the one in hand is left.
    fn hear_divisions(&mut self) {
        for mut flight in std::mem::take(&mut self.flights) {
            let left = self.engine.lock_dispatcher().left_of(flight.number);
            if let (Some(turns), Some(left)) = (flight.turns.clone(), left)
                && left < flight.messages.len()
            {
                let arrived = turns.arrived() - flight.first;
                assert!(left <= 1 && (left == 1) == flight.has_begun, "{left} are left");
                let keys = flight.messages.clone();
                flight.messages.drain(..arrived);
                flight.messages.truncate(left);
                flight.first += arrived;
                for (place, key) in keys.iter().enumerate() {
                    match place {
                        _ if place < arrived => self.note(*key, &Verdict::Delivered),
                        _ if place < arrived + left => {}
                        _ => self.note(*key, &Verdict::NotTried),
                    }
                }
            }
            self.flights.push_back(flight);
        }
    }

    fn verdict(&mut self, kind: u64) -> Verdict {
        let retry_after_ms = (self.random.below(4) == 0).then_some(300);
        match kind {
            0..4 => Verdict::Delivered,
            4 => Verdict::Refused("no".into()),
            5 => Verdict::Unanswered { reason: "503".into(), retry_after_ms },
            6 => Verdict::Unreachable { reason: "refused".into(), retry_after_ms },
            _ if self.random.below(4) == 0 => Verdict::NotTried,
            _ => {
                let kind = self.random.below(7);
                self.verdict(kind)
            }
        }
    }

    fn note(&mut self, key: Key, verdict: &Verdict) {
        let life = self.lives.get_mut(&key).unwrap();
        life.is_in_flight = false;
        let (own, unanswered) = self.failures.entry(key).or_default();
        match verdict {
            Verdict::Delivered => life.end = Some(Outcome::Delivered),
            Verdict::Refused(_) => {
                *own += 1;
                life.is_retrying = true;
            }
            Verdict::Unanswered { .. } => {
                *unanswered += 1;
                life.is_retrying = true;
            }
            Verdict::Unreachable { .. } | Verdict::NotTried => life.is_retrying = true,
        }
    }

    /// How many outcomes wait for the writer.
    fn outcomes(&self) -> usize {
        self.engine.queue.outcomes().len()
    }

    /// Messages that were given up since there were so many outcomes.
    fn hear_the_dead(&mut self, before: usize) {
        for done in self.engine.queue.outcomes().into_iter().skip(before) {
            if done.outcome == Outcome::Dead {
                let Some(key) = self.numbers.get(&done.seq).copied() else { continue };
                let (own, unanswered) = self.failures.get(&key).copied().unwrap_or_default();
                assert!(own + unanswered + self.crashes >= MAX_ATTEMPTS, "{key:?} was given up too early");
                let life = self.lives.entry(key).or_default();
                *life = Life { end: Some(Outcome::Dead), ..Life::default() };
            }
        }
    }

    fn hear_cut_offs(&mut self, before: usize) {
        for place in 0..self.flights.len() {
            if self.engine.is_in_flight(self.flights[place].number) {
                continue;
            }
            let arrived = self.flights[place].turns.as_ref().map(|turns| turns.arrived() - self.flights[place].first);
            for (at, key) in std::mem::take(&mut self.flights[place].messages).into_iter().enumerate() {
                let verdict = match arrived {
                    Some(arrived) if at < arrived => Verdict::Delivered,
                    Some(arrived) if at > arrived => Verdict::NotTried,
                    _ => Verdict::Unanswered { reason: "no answer in time".into(), retry_after_ms: None },
                };
                self.note(key, &verdict);
            }
        }
        self.hear_divisions();
        self.hear_the_dead(before);
    }

    // --- Time, and what else happens -----------------------------------------

    fn advance(&mut self) {
        let now_us = self.engine.clock().now_us();
        let step_us = match self.random.below(8) {
            0..3 => self.random.below(30_000),
            3..6 => self.engine.next_wake_us().map_or(1_000, |next_us| next_us.saturating_sub(now_us)).min(5_000_000),
            6 => self.random.below(2_000_000),
            _ => self.random.below(40) * 1_000_000,
        };
        self.advance_by(step_us);
    }

    fn advance_by(&mut self, step_us: u64) {
        show!(self, "advance {step_us} us");
        self.engine.clock().set_us(self.engine.clock().now_us() + step_us);
        self.wall_us.fetch_add(step_us as i64, Ordering::Relaxed);
        self.age_ms += (step_us / 1000) as i64 + 1;
    }

    fn step_wall_clock(&mut self) {
        let step_us = match self.random.below(20) {
            0 => 8 * 86_400_000_000,
            1..10 => self.random.below(3_000_000) as i64,
            _ => -(self.random.below(3_000_000) as i64),
        };
        show!(self, "wall clock {step_us:+} us");
        self.wall_us.fetch_add(step_us, Ordering::Relaxed);
        self.ahead_ms += step_us.max(0) / 1000 + 1;
        self.is_off = true;
        if self.random.below(3) > 0 {
            self.follow_clock();
        }
    }

    fn follow_clock(&mut self) {
        show!(self, "follow the clock");
        self.engine.follow_clock();
        self.is_off = false;
    }

    fn tell_some(&mut self) {
        if self.random.below(2) == 0 {
            self.take_letters();
        } else {
            self.tell();
        }
    }

    /// The program is told of dead letters, each once, but for crashes.
    fn take_letters(&mut self) {
        let Some((letters, through)) = self.engine.take_letters() else { return };
        assert!(self.telling.in_hand.is_none(), "two lots of letters at a time");
        let sources: Vec<Source> = letters.into_iter().map(|letter| (letter.source, letter.line)).collect();
        show!(self, "letters {sources:?}");
        for source in &sources {
            assert!(!self.telling.over.contains(source), "{source:?} was told before, and that is on disk");
            self.telling.owed.remove(source);
        }
        self.telling.in_hand = Some((through, sources));
    }

    fn tell(&mut self) {
        self.take_letters();
        if let Some((through, sources)) = self.telling.in_hand.take() {
            self.telling.answered.extend(sources);
            self.engine.letters_told(through);
        }
    }

    /// Runs until nothing is left to do at this moment: all that is due is on its way.
    fn pump(&mut self) {
        show!(self, "pump");
        self.follow_clock();
        while self.begun.is_some() || self.committed.is_some() {
            self.write_a_part(); // a group that read the store earlier
        }
        for round in 0.. {
            assert!(round < 500, "it never comes to rest: {}", self.state());
            self.write();
            self.tell();
            let flights = self.flights.len();
            self.take();
            if self.flights.len() == flights && !self.engine.queue.is_woken() {
                break;
            }
        }
        if self.engine.down().is_some() || !self.engine.lock_dispatcher().has_room_and_no_suspects() {
            return;
        }
        let busy: BTreeSet<Option<u8>> = self
            .lives
            .iter()
            .filter(|(_, life)| life.is_in_flight || life.is_retrying)
            .map(|(key, _)| key.0.0)
            .collect();
        for (name, all) in &self.stored {
            let is_blocked =
                if self.settings.is_global { !busy.is_empty() } else { name.0.is_some() && busy.contains(&name.0) };
            for it in all.iter().filter(|it| it.end.is_none() && it.due_ms <= self.wall_ms()) {
                let life = self.lives.get(&(*name, it.order)).copied().unwrap_or_default();
                let is_under_way = life.is_in_flight || life.is_retrying || life.end.is_some();
                let why = || format!("{name:?} {it:?} is due, and is not on its way; {}", self.state());
                assert!(is_under_way || is_blocked, "{}", why());
            }
        }
    }

    fn state(&self) -> String {
        let dispatcher = self.engine.lock_dispatcher();
        let entries: Vec<_> = dispatcher.window.slots().map(|(_, entry)| format!("{entry:?}")).collect();
        let window = &dispatcher.window;
        format!(
            "cursor {:?}, full {}, {dispatcher:?}, in memory:\n{}",
            window.cursor,
            window.was_full,
            entries.join("\n")
        )
    }

    fn reopen(&mut self) {
        show!(self, "close and open");
        self.write();
        self.write();
        if !self.flights.is_empty() {
            if self.random.below(2) == 0 {
                self.engine.close(false).unwrap(); // a sink hangs
            }
            return self.crash();
        }
        for (key, life) in &self.lives {
            if life.end.is_none() && life.is_retrying {
                self.must_be_again.insert(*key);
                self.may_be_again.insert(*key);
            }
        }
        self.engine.close(true).unwrap();
        self.open_again();
    }

    fn crash(&mut self) {
        show!(self, "crash");
        self.crashes += 1;
        for (sure, maybe) in self.failures.values_mut() {
            *maybe += std::mem::take(sure); // it may not have been on disk that it failed
        }
        self.note_suspects();
        if let Some(log) = &mut self.log {
            for flight in &self.flights {
                if self.engine.is_in_flight(flight.number) {
                    let has_arrived = flight.seqs.iter().filter(|_| self.random.below(2) == 0);
                    log.extend(has_arrived);
                }
            }
        }
        for (key, life) in &self.lives {
            if life.is_in_flight || life.is_retrying || life.end == Some(Outcome::Delivered) {
                self.must_be_again.insert(*key);
            }
        }
        self.open_again();
    }

    /// What is in memory may be marked after a crash.
    fn note_suspects(&mut self) {
        let dispatcher = self.engine.lock_dispatcher();
        for (_, entry) in dispatcher.window.slots() {
            let body = entry.body.as_ref();
            let key = self.numbers.get(&entry.seq).copied().or_else(|| {
                let name = name_of(body?);
                Some((name, self.stored.get(&name)?.last()?.order))
            });
            self.may_be_again.extend(key);
        }
    }

    fn open_again(&mut self) {
        self.submitted.clear();
        self.begun = None;
        self.committed = None;
        self.flights.clear();
        self.lives.clear();
        self.telling.in_hand = None;
        self.telling.owed.extend(std::mem::take(&mut self.telling.answered));
        self.telling.owed.extend(std::mem::take(&mut self.telling.in_group));
        for all in self.stored.values_mut() {
            for it in all {
                it.placed = Some(0);
            }
        }
        if self.random.below(2) == 0 {
            let closed_us = self.random.below(5_000_000) as i64;
            self.wall_us.fetch_add(closed_us, Ordering::Relaxed);
            self.ahead_ms += closed_us / 1000 + 1;
        }
        self.age_ms += std::mem::take(&mut self.ahead_ms).min(86_400_000);
        let start_us = self.random.below(1 << 40);
        // The engine before it is closed first, as its process is gone.
        let nothing = open(&self.store.with_extension("none"), &self.settings, &self.wall_us, 0);
        drop(std::mem::replace(&mut self.engine, nothing));
        self.engine = open(&self.store, &self.settings, &self.wall_us, start_us);
        self.start();
    }

    /// The destination takes everything from now on: in the end all is delivered, and nothing is lost.
    fn heal(&mut self) {
        show!(self, "heal");
        self.is_healed = true;
        for _ in 0..400 {
            self.pump();
            while !self.flights.is_empty() {
                self.settle();
            }
            self.pump();
            let now_us = self.engine.clock().now_us();
            let next_us = self.engine.next_wake_us().unwrap_or(u64::MAX).clamp(now_us + 1_000, now_us + 300_000);
            self.advance_by(next_us - now_us);
            if self.submitted.is_empty() && self.flights.is_empty() && self.engine.is_empty() {
                break;
            }
        }
        for (name, all) in &self.stored {
            for it in all {
                assert!(it.end.is_some(), "{name:?} {it:?} was lost; at {}, {}", self.wall_ms(), self.state());
            }
        }
        assert!(self.engine.is_empty(), "something is left over");
        assert_eq!(self.telling.owed, BTreeSet::new(), "letters were not told");
        self.grow_old();
    }

    /// In the end nothing is known any more (D5).
    fn grow_old(&mut self) {
        let keep_ms = self.settings.keep_ids_ms;
        if keep_ms > 60_000 {
            return;
        }
        for _ in 0..12 {
            self.advance_by((keep_ms / 4).max(2_000) * 1000);
            self.pump();
        }
        let names: Vec<Name> = self.stored.keys().copied().collect();
        self.engine.with_store(|store| {
            store.begin().unwrap();
            for _ in 0..500 {
                if !store.upkeep(true).unwrap() {
                    break;
                }
            }
            store.commit().unwrap();
            for name in names {
                let (key, id) = text(name);
                assert_eq!(store.find(key.as_deref(), &id).unwrap(), None, "it is known for ever");
            }
            assert_eq!(store.remembered_cancels(), 0, "cancels are remembered for ever");
        });
    }
}

/// The name that something is asked about; a record that could not be read has none, and gets no answer.
fn name_asked(asked: &Asked) -> Option<Name> {
    match asked {
        Asked::Put { name, .. } | Asked::Cancel(name) | Asked::Look(name) => Some(*name),
        Asked::Bad(_) => None,
    }
}

fn open(store: &Path, settings: &Settings, wall_us: &Arc<AtomicI64>, start_us: u64) -> Engine {
    let clock = Clock::manual(0);
    clock.set_us(start_us);
    let wall_us = wall_us.clone();
    let wall = move || wall_us.load(Ordering::Relaxed);
    let ownership = Ownership::take(store, &mut |_| (), &mut || false).unwrap();
    Engine::open(ownership, settings.clone(), clock, Arc::new(wall)).unwrap()
}

fn text(name: Name) -> (Option<String>, String) {
    (name.0.map(|key| format!("k{key}")), format!("i{}", name.1))
}

fn name_of(body: &Body) -> Name {
    (body.key().map(|key| key[1..].parse().unwrap()), body.id()[1..].parse().unwrap())
}

fn payload(number: u8) -> Vec<u8> {
    vec![b'1' + number % 5; 1 + usize::from(number / 5) * 150]
}

fn item(asked: &Asked) -> Item {
    match asked {
        Asked::Put { name, due_ms, payload: number } => {
            let (key, id) = text(*name);
            let body = Body::new(key.as_deref(), &id, &payload(*number), true);
            Item::Put(Incoming::of(Message { body, due_ms: *due_ms, delay_ms: None }))
        }
        Asked::Cancel(name) => {
            let (key, id) = text(*name);
            Item::Cancel(Cancel { id, key, keep_days: 0 })
        }
        Asked::Look(name) => {
            let (key, id) = text(*name);
            Item::Look { id, key }
        }
        Asked::Bad(line) => Item::Letter(Letter {
            source: "input".to_owned(),
            line: *line,
            reason: "it is bad".to_owned(),
            allowed: "a good one".to_owned(),
            record: b"{}".to_vec(),
        }),
    }
}

fn again(last: &Stored, due_ms: i64, payload: u8) -> Answer {
    if (last.due_ms, last.payload) != (due_ms, payload) {
        Answer::OtherContent
    } else if last.end == Some(Outcome::Cancelled) {
        Answer::Cancelled
    } else {
        Answer::Duplicate
    }
}

fn answer_of(end: Outcome) -> Answer {
    match end {
        Outcome::Delivered => Answer::Delivered,
        Outcome::Cancelled => Answer::Cancelled,
        Outcome::Dead => Answer::Dead,
    }
}

fn shown(delivery: &Delivery) -> String {
    let name = name_of(&delivery.body);
    let again = if delivery.redelivered { " again" } else { "" };
    format!("{name:?} seq {} due {} attempt {}{again}", delivery.seq, delivery.due_ms, delivery.attempt)
}

fn play(seed: u64, is_shown: bool) {
    let folder = folder_in_memory(); // nothing here tests the disk
    let mut world = World::new(seed, folder.path(), is_shown);
    for _ in 0..STEPS {
        world.step();
    }
    world.heal();
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn whatever_happens_the_rules_hold() {
    if let Some(seed) = setting("TICKWHEEL_SEED") {
        return play(seed, true);
    }
    for seed in 0..setting("TICKWHEEL_SEEDS").unwrap_or(3_000) {
        let result = std::panic::catch_unwind(|| play(seed, false));
        if let Err(error) = result {
            eprintln!("seed {seed}: TICKWHEEL_SEED={seed} repeats it");
            std::panic::resume_unwind(error);
        }
    }
}
