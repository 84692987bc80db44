//! A destination with many customers, on a manual clock (D6). Some customers are bad. Each customer is a key, or sends
//! messages without keys. `fixed.rs` has plans for single rules, and `outages.rs` those with an outage. In `random.rs` a seed
//! decides which customers are bad, and what happens.
//!
//! ```text
//! TICKWHEEL_SEEDS=100000 cargo test --release -p tickwheel-delivery customers     # `make soak`
//! TICKWHEEL_SEED=4711 cargo test -p tickwheel-delivery customers -- --nocapture   # one seed again
//! ```
//!
//! The player checks in each plan:
//!
//! - One message of a key is in flight at a time, in order.
//! - There are no more sends at a time than places, and no more of a tenant than it may have.
//! - While the destination is down, there are at most four tries a second.

mod fixed;
mod outages;
mod random;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::tenants::of;
use super::testing::{ByHand, START_MS, put};
use crate::due::dispatcher::Event;
use crate::due::places::PlaceLimits;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};

const S_US: u64 = 1_000_000;
const TIME_OUT_US: u64 = 10 * S_US;
/// How long a healthy send takes.
const USUAL_US: u64 = 5_000;
/// More than the size of any message of these plans.
const BYTES: usize = 200;

/// The behaviour of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Healthy,
    /// The connection is refused.
    Gone,
    /// No answer in time.
    Silent,
    /// No answer in time, and the call returns only long after its cut-off.
    Stays,
    Answers(u16),
    /// It asks for a wait of so many seconds.
    Busy(u64),
    /// Each send takes this time.
    Slow(u64),
    /// Healthy and gone in turn, each for this time.
    Flaps(u64),
    /// Its message 0 is always refused.
    Poisoned,
}

impl Kind {
    /// How long a send takes, and how it ends.
    fn send(self, now_us: u64, id: &str) -> (u64, Verdict) {
        let (reason, retry_after_ms) = (format!("{self:?}"), None);
        match self {
            Self::Healthy => (USUAL_US, Verdict::Delivered),
            Self::Slow(us) => (us, Verdict::Delivered),
            Self::Flaps(us) if (now_us / us).is_multiple_of(2) => (USUAL_US, Verdict::Delivered),
            Self::Poisoned if !id.ends_with("-0") => (USUAL_US, Verdict::Delivered),
            Self::Poisoned | Self::Answers(400..500) => (USUAL_US, Verdict::Refused(reason)),
            Self::Gone | Self::Flaps(_) => (1_000, Verdict::Unreachable { reason, retry_after_ms }),
            Self::Silent => (TIME_OUT_US, Verdict::Unanswered { reason, retry_after_ms }),
            Self::Stays => (5 * TIME_OUT_US / 2, Verdict::Unanswered { reason, retry_after_ms }),
            Self::Busy(s) => (USUAL_US, Verdict::Unanswered { reason, retry_after_ms: Some(s * 1_000) }),
            Self::Answers(500) => (USUAL_US, Verdict::Failed { reason, retry_after_ms }),
            Self::Answers(_) => (USUAL_US, Verdict::Unanswered { reason, retry_after_ms }),
        }
    }
}

/// A customer, how many messages it has, and the time in which they are due.
#[derive(Clone, Debug)]
struct Customer {
    kind: Kind,
    has_key: bool,
    messages: usize,
    from_us: u64,
    until_us: u64,
}

/// Three messages within five seconds.
fn customers(count: usize, kind: Kind) -> Vec<Customer> {
    vec![Customer { kind, has_key: true, messages: 3, from_us: 0, until_us: 5 * S_US }; count]
}

/// Bad customers first, then healthy ones.
fn mixed(bad: usize, kind: Kind, healthy: usize) -> Vec<Customer> {
    [customers(bad, kind), customers(healthy, Kind::Healthy)].concat()
}

#[derive(Clone, Debug)]
struct Plan {
    young: usize,
    spare: usize,
    /// So many sends fit into the bytes of the spare places.
    spare_bytes: usize,
    customers: Vec<Customer>,
    /// How many tenants the customers belong to, in turn; 0: none. And how many messages of each may be out.
    tenants: (usize, Option<usize>),
    /// The start and the end of each outage, and how all customers behave meanwhile.
    outages: Vec<(u64, u64, Kind)>,
    /// When the process is killed, and starts again.
    restart_us: Option<u64>,
    unanswered_for_us: u64,
    until_us: u64,
    seed: u64,
}

impl Plan {
    fn new(customers: Vec<Customer>) -> Self {
        Self {
            young: 8,
            spare: 64,
            spare_bytes: usize::MAX,
            customers,
            tenants: (0, None),
            outages: Vec::new(),
            restart_us: None,
            unanswered_for_us: 86_400 * S_US,
            until_us: 60 * S_US,
            seed: 1,
        }
    }

    /// Each customer has so many messages within this time.
    fn with_messages(mut self, messages: usize, within_us: u64) -> Self {
        for it in &mut self.customers {
            (it.messages, it.until_us) = (messages, within_us);
        }
        self
    }

    /// Some customers have none.
    fn tenant_of(&self, customer: usize) -> Option<String> {
        let tenant = customer % (self.tenants.0 + 1);
        (tenant > 0).then(|| format!("t{tenant}"))
    }

    fn outage_at(&self, now_us: u64) -> Option<Kind> {
        self.outages.iter().find(|(from_us, to_us, _)| (*from_us..*to_us).contains(&now_us)).map(|it| it.2)
    }

    /// When the last outage ends.
    fn back_us(&self) -> Option<u64> {
        self.outages.iter().map(|it| it.1).max()
    }
}

/// What happened to the messages of a customer.
#[derive(Clone, Debug, Default)]
struct Came {
    delivered: usize,
    /// When each message became a dead letter, and how long after its due time.
    dead: Vec<(u64, u64)>,
    /// The greatest lateness.
    late_us: i64,
}

/// The result of a plan.
#[derive(Debug, Default)]
struct Result {
    customers: Vec<Came>,
    /// When the destination went down.
    downs_us: Vec<u64>,
    /// The last time at which a key failed that had not failed before.
    new_failure_us: u64,
    /// The first accepted send after that.
    accepted_after_new_us: Option<u64>,
    tries_in_outage: usize,
    /// Whether the destination was down when the last outage ended, and a customer that was accepted before had a due message.
    is_awaited: bool,
    /// The first accepted send that began after the last outage.
    first_after_us: Option<u64>,
    /// The destination is down at the end: nothing was accepted since the last outage, as only bad customers had messages.
    is_down: bool,
    sends: usize,
}

impl Result {
    fn latest_healthy_us(&self, plan: &Plan) -> i64 {
        let all = plan.customers.iter().zip(&self.customers);
        let healthy = all.filter(|(it, _)| it.kind == Kind::Healthy);
        healthy
            .map(|(it, came)| {
                assert_eq!((came.delivered, came.dead.len()), (it.messages, 0), "a healthy customer: {plan:?}");
                came.late_us
            })
            .max()
            .unwrap_or(0)
    }
}

struct Flight {
    deliveries: Vec<Delivery>,
    verdicts: Vec<Verdict>,
    began_us: u64,
}

struct Play {
    plan: Plan,
    world: ByHand,
    now_us: u64,
    /// When the process began.
    began_us: u64,
    in_flight: BinaryHeap<Reverse<(u64, u64)>>,
    flights: BTreeMap<u64, Flight>,
    /// The due time of the last delivered message of each customer.
    last: BTreeMap<usize, i64>,
    due_us: BTreeMap<String, u64>,
    /// Keys that have failed, and messages without a key.
    failed: BTreeSet<String>,
    /// The start of the last outage, and how many tries it had.
    down: Option<(u64, u64)>,
    is_back: bool,
    result: Result,
}

fn customer_of(id: &str) -> usize {
    id.split_once('-').unwrap().0.parse().unwrap()
}

/// The most tries in so long an outage: four a second.
fn most_tries(down_us: u64) -> u64 {
    4 * (1 + down_us / S_US)
}

impl Play {
    fn of(plan: Plan) -> Result {
        let world = ByHand::start(Settings {
            seed: plan.seed,
            sink_timeout_ms: TIME_OUT_US / 1_000,
            unanswered_for_ms: plan.unanswered_for_us / 1_000,
            tenant_concurrency: plan.tenants.1,
            ..Settings::default()
        });
        let result = Result { customers: vec![Came::default(); plan.customers.len()], ..Result::default() };
        let mut play = Self {
            plan,
            world,
            now_us: 0,
            began_us: 0,
            in_flight: BinaryHeap::new(),
            flights: BTreeMap::new(),
            last: BTreeMap::new(),
            due_us: BTreeMap::new(),
            failed: BTreeSet::new(),
            down: None,
            is_back: false,
            result,
        };
        play.set_places();
        play.put_all();
        play.run();
        play.result
    }

    fn set_places(&self) {
        let Plan { young, spare, .. } = self.plan;
        let spare_bytes = self.plan.spare_bytes.saturating_mul(BYTES);
        self.world.engine.set_places(PlaceLimits { young, spare, spare_bytes, hanging: 0, ..PlaceLimits::NONE });
    }

    fn put_all(&mut self) {
        let mut random = fastrand::Rng::with_seed(self.plan.seed);
        let mut items = Vec::new();
        for (customer, it) in self.plan.customers.iter().enumerate() {
            for number in 0..it.messages {
                let due_ms = random.u64(it.from_us..it.until_us) / 1_000;
                let (key, id) = (format!("c{customer}"), format!("{customer}-{number}"));
                let (key, due) = (it.has_key.then_some(&key[..]), START_MS + due_ms as i64);
                items.push(match self.plan.tenant_of(customer) {
                    Some(tenant) => of(&tenant, None, key, &id, due),
                    None => put(key, &id, due),
                });
                self.due_us.insert(id, due_ms * 1_000);
            }
        }
        self.world.give(items);
    }

    fn run(&mut self) {
        while self.now_us < self.plan.until_us && !(self.world.engine.is_empty() && self.in_flight.is_empty()) {
            self.world.write();
            self.take_all();
            self.note_events();
            self.look_whether_it_is_back();
            let mut next_us = self.in_flight.peek().map_or(u64::MAX, |Reverse((at_us, _))| *at_us);
            let wake_us =
                self.world.engine.timer.next_wake_us().map_or(u64::MAX, |us| us.saturating_add(self.began_us));
            next_us = next_us.min(wake_us).min(self.now_us + 200_000);
            if let Some(at_us) = self.plan.restart_us.filter(|at_us| *at_us <= next_us) {
                self.plan.restart_us = None;
                self.advance_to(at_us.max(self.now_us));
                self.restart();
                continue;
            }
            self.advance_to(next_us.max(self.now_us));
            self.answer();
        }
        self.world.write();
        self.note_events();
        self.result.is_down = self.world.engine.down().is_some();
    }

    fn advance_to(&mut self, at_us: u64) {
        self.world.advance_us(at_us - self.now_us);
        self.now_us = at_us;
    }

    fn take_all(&mut self) {
        while let Some((number, deliveries)) = self.world.engine.take(1, usize::MAX, true) {
            self.result.sends += deliveries.len();
            let [it] = &deliveries[..] else { panic!("one at a time") };
            self.check_tries();
            let who = customer_of(it.id());
            let of_it = |flight: &&Flight| flight.deliveries.iter().any(|other| customer_of(other.id()) == who);
            // A call that was cut off has its ending.
            let is_open = |flight: &&Flight| self.now_us < flight.began_us + TIME_OUT_US;
            let is_alone = it.key().is_none() || !self.flights.values().filter(is_open).any(|it| of_it(&it));
            assert!(is_alone, "two of customer {who} are in flight");
            if let (Some(most), Some(tenant)) = (self.plan.tenants.1, self.plan.tenant_of(who)) {
                let all = self.flights.values().flat_map(|it| &it.deliveries);
                let out = all.filter(|it| self.plan.tenant_of(customer_of(it.id())).as_ref() == Some(&tenant)).count();
                assert!(out < most, "{out} of {tenant} are out already: {:?}", self.plan);
            }
            let outage = self.plan.outage_at(self.now_us);
            self.result.tries_in_outage += usize::from(outage.is_some());
            let (takes_us, verdict) = outage.unwrap_or(self.plan.customers[who].kind).send(self.now_us, it.id());
            self.in_flight.push(Reverse((self.now_us + takes_us, number)));
            self.flights.insert(number, Flight { deliveries, verdicts: vec![verdict], began_us: self.now_us });
            let most = self.plan.young + self.plan.spare;
            assert!(self.flights.len() <= most, "{} sends in {most} places", self.flights.len());
        }
    }

    /// A send goes out: if the destination is down, it is a try.
    fn check_tries(&mut self) {
        let Some(since_us) = self.world.engine.lock_dispatcher().down().map(|(since_us, _)| since_us + self.began_us)
        else {
            return;
        };
        let (_, tries) = self.down.take().filter(|(before_us, _)| *before_us == since_us).unwrap_or_default();
        self.down = Some((since_us, tries + 1));
        let (tries, most) = (tries + 1, most_tries(self.now_us - since_us));
        assert!(tries <= most, "{tries} tries, {most} are allowed: {:?}", self.plan);
    }

    fn answer(&mut self) {
        while let Some(Reverse((at_us, number))) = self.in_flight.peek().copied().filter(|it| it.0.0 <= self.now_us) {
            self.in_flight.pop();
            let Flight { deliveries, verdicts, began_us } = self.flights.remove(&number).unwrap();
            for (it, verdict) in deliveries.iter().zip(&verdicts) {
                if *verdict == Verdict::Delivered {
                    self.delivered(it, began_us, at_us);
                } else if self.failed.insert(it.key().unwrap_or(it.id()).to_owned()) {
                    (self.result.new_failure_us, self.result.accepted_after_new_us) = (at_us, None);
                }
            }
            self.world.engine.settle(number, Verdicts::Each(verdicts), None);
        }
    }

    fn delivered(&mut self, it: &Delivery, began_us: u64, at_us: u64) {
        let who = customer_of(it.id());
        if it.key().is_some() {
            let last = self.last.insert(who, it.due_ms);
            assert!(last.is_none_or(|last| last <= it.due_ms), "customer {who} is out of order");
        }
        let came = &mut self.result.customers[who];
        came.delivered += 1;
        came.late_us = came.late_us.max(it.lateness_us);
        if began_us > self.result.new_failure_us {
            self.result.accepted_after_new_us.get_or_insert(at_us);
        }
        if self.plan.back_us().is_some_and(|back_us| at_us >= back_us) {
            self.result.first_after_us.get_or_insert(at_us);
        }
    }

    fn look_whether_it_is_back(&mut self) {
        if self.is_back || self.plan.back_us().is_none_or(|back_us| self.now_us < back_us) {
            return;
        }
        self.is_back = true;
        let has_due = |who: &usize| {
            let (it, came) = (&self.plan.customers[*who], &self.result.customers[*who]);
            let due = (0..it.messages).filter(|number| self.due_us[&format!("{who}-{number}")] < self.now_us);
            it.kind == Kind::Healthy && due.count() > came.delivered
        };
        self.result.is_awaited = self.world.engine.down().is_some() && self.last.keys().any(has_due);
    }

    fn note_events(&mut self) {
        let events = self.world.engine.take_events();
        self.result.downs_us.extend(events.iter().filter(|it| matches!(it, Event::Down { .. })).map(|_| self.now_us));
        while let Some((letters, through)) = self.world.engine.queue.take_letters() {
            for letter in letters {
                let text = String::from_utf8(letter.record).unwrap();
                let id = text.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
                let after_us = self.now_us.saturating_sub(self.due_us[id]);
                self.result.customers[customer_of(id)].dead.push((self.now_us, after_us));
            }
            self.world.engine.queue.letters_taken(through);
            self.world.write();
        }
    }

    fn restart(&mut self) {
        for flight in std::mem::take(&mut self.flights).into_values() {
            for it in flight.deliveries {
                self.failed.remove(it.key().unwrap_or(it.id()));
            }
        }
        self.in_flight.clear();
        self.last.clear();
        let world = std::mem::replace(&mut self.world, ByHand::start(Settings::default()));
        self.world = world.again();
        self.set_places();
        self.began_us = self.now_us;
    }
}
