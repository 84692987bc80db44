//! A destination with many customers, on a manual clock (D6). Some customers are bad. Each customer is a key. In the
//! last test, a seed decides which customers are bad, and how.
//!
//! ```text
//! TICKWHEEL_SEEDS=100000 cargo test --release -p tickwheel-delivery customers     # `make soak`
//! TICKWHEEL_SEED=4711 cargo test -p tickwheel-delivery customers -- --nocapture   # one seed again
//! ```
//!
//! The rules for each seed:
//!
//! - One message of a key is in flight at a time, in order.
//! - There are no more sends at a time than places.
//! - If there are M bad customers, and M is not more than the spare places, a healthy customer's message is late by at
//!   most M * 0.1 s / concurrency + 0.3 s. The time that healthy messages need for one another is added.
//!
//! The rules for fixed plans:
//!
//! - Bad customers alone never make the destination down, if others are healthy.
//! - In a whole outage no message becomes a dead letter, and the first delivery comes soon after its end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::testing::{ByHand, START_MS, play_seeds, put};
use crate::due::dispatcher::Event;
use crate::due::places::PlaceLimits;
use crate::due::retry::Retry;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict, Verdicts};

const S_US: u64 = 1_000_000;
const TIME_OUT_US: u64 = 10 * S_US;
/// How long a healthy send takes.
const USUAL_US: u64 = 5_000;

/// The behaviour of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Customer {
    Healthy,
    /// The connection is refused.
    Gone,
    /// No answer in time.
    Silent,
    Answers(u16),
    /// Each send takes this time.
    Slow(u64),
    /// Healthy and gone in turn, each for this time.
    Flaps(u64),
    /// Its message 0 is always refused.
    Poisoned,
}

impl Customer {
    /// How long a send takes, and how it ends.
    fn send(self, now_us: u64, id: &str) -> (u64, Verdict) {
        let (reason, retry_after_ms) = (format!("{self:?}"), None);
        match self {
            Self::Healthy => (USUAL_US, Verdict::Delivered),
            Self::Slow(us) => (us, Verdict::Delivered),
            Self::Flaps(us) if (now_us / us).is_multiple_of(2) => (USUAL_US, Verdict::Delivered),
            Self::Poisoned if !id.ends_with('0') => (USUAL_US, Verdict::Delivered),
            Self::Poisoned | Self::Answers(400..500) => (USUAL_US, Verdict::Refused(reason)),
            Self::Gone | Self::Flaps(_) => (1_000, Verdict::Unreachable { reason, retry_after_ms }),
            Self::Silent => (TIME_OUT_US, Verdict::Unanswered { reason, retry_after_ms }),
            Self::Answers(500) => (USUAL_US, Verdict::Failed { reason, retry_after_ms }),
            Self::Answers(_) => (USUAL_US, Verdict::Unanswered { reason, retry_after_ms }),
        }
    }
}

#[derive(Clone, Debug)]
struct Plan {
    young: usize,
    spare: usize,
    customers: Vec<Customer>,
    /// How many messages each customer has, and the time within which they are due.
    messages: usize,
    within_us: u64,
    /// The start and the end of an outage, and how all customers behave meanwhile.
    outage: Option<(u64, u64, Customer)>,
    /// When the process is killed, and starts again.
    restart_us: Option<u64>,
    until_us: u64,
    seed: u64,
}

impl Plan {
    fn new(customers: Vec<Customer>) -> Self {
        Self {
            young: 8,
            spare: 64,
            customers,
            messages: 3,
            within_us: 5 * S_US,
            outage: None,
            restart_us: None,
            until_us: 60 * S_US,
            seed: 1,
        }
    }
}

/// The result of a plan.
#[derive(Debug, Default)]
struct Result {
    /// For each customer: how many messages were delivered, how many are dead, and the greatest lateness.
    customers: Vec<(usize, usize, i64)>,
    downs: usize,
    tries_in_outage: usize,
    first_after_us: Option<u64>,
    sends: usize,
}

struct Play {
    plan: Plan,
    world: ByHand,
    now_us: u64,
    /// When the process began.
    began_us: u64,
    in_flight: BinaryHeap<Reverse<(u64, u64)>>,
    flights: BTreeMap<u64, (Vec<Delivery>, Vec<Verdict>)>,
    last: BTreeMap<usize, i64>,
    result: Result,
}

fn customer_of(it: &Delivery) -> usize {
    it.id().split_once('-').unwrap().0.parse().unwrap()
}

impl Play {
    fn of(plan: Plan) -> Result {
        let settings =
            Settings { seed: plan.seed, sink_timeout_ms: 60_000, retry: Retry::default(), ..Settings::default() };
        let world = ByHand::start(settings);
        let result = Result { customers: vec![(0, 0, 0); plan.customers.len()], ..Result::default() };
        let mut play = Self {
            plan,
            world,
            now_us: 0,
            began_us: 0,
            in_flight: BinaryHeap::new(),
            flights: BTreeMap::new(),
            last: BTreeMap::new(),
            result,
        };
        play.set_places();
        play.put_all();
        play.run();
        play.result
    }

    fn set_places(&self) {
        let Plan { young, spare, .. } = self.plan;
        let limits = PlaceLimits { young, spare, hanging: 0, ..PlaceLimits::NONE };
        self.world.engine.set_places(limits);
    }

    fn put_all(&self) {
        let mut random = fastrand::Rng::with_seed(self.plan.seed);
        let mut items = Vec::new();
        for customer in 0..self.plan.customers.len() {
            for number in 0..self.plan.messages {
                let due_ms = START_MS + (random.u64(0..self.plan.within_us) / 1_000) as i64;
                items.push(put(Some(&format!("c{customer}")), &format!("{customer}-{number}"), due_ms));
            }
        }
        self.world.give(items);
    }

    fn run(&mut self) {
        while self.now_us < self.plan.until_us && !(self.world.engine.is_empty() && self.in_flight.is_empty()) {
            self.world.write();
            self.take_all();
            self.note_events();
            let mut next_us = self.in_flight.peek().map_or(u64::MAX, |Reverse((at_us, _))| *at_us);
            let wake_us = self.world.engine.next_wake_us().map_or(u64::MAX, |us| us.saturating_add(self.began_us));
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
    }

    fn advance_to(&mut self, at_us: u64) {
        self.world.advance_us(at_us - self.now_us);
        self.now_us = at_us;
    }

    fn take_all(&mut self) {
        while let Some((number, deliveries)) = self.world.engine.take(1, usize::MAX, false) {
            self.result.sends += deliveries.len();
            let [it] = &deliveries[..] else { panic!("one at a time") };
            let who = customer_of(it);
            let is_alone =
                self.flights.values().all(|(others, _)| others.iter().all(|other| customer_of(other) != who));
            assert!(is_alone, "two of customer {who} are in flight");
            let outage = self.plan.outage.filter(|(from_us, to_us, _)| (*from_us..*to_us).contains(&self.now_us));
            self.result.tries_in_outage += usize::from(outage.is_some());
            let customer = outage.map_or(self.plan.customers[who], |(_, _, customer)| customer);
            let (takes_us, verdict) = customer.send(self.now_us, it.id());
            self.in_flight.push(Reverse((self.now_us + takes_us, number)));
            self.flights.insert(number, (deliveries, vec![verdict]));
            let most = self.plan.young + self.plan.spare;
            assert!(self.flights.len() <= most, "{} sends in {most} places", self.flights.len());
        }
    }

    fn answer(&mut self) {
        while let Some(Reverse((at_us, number))) = self.in_flight.peek().copied().filter(|it| it.0.0 <= self.now_us) {
            self.in_flight.pop();
            let (deliveries, verdicts) = self.flights.remove(&number).unwrap();
            for (it, verdict) in deliveries.iter().zip(&verdicts) {
                if *verdict == Verdict::Delivered {
                    self.delivered(it, at_us);
                }
            }
            self.world.engine.settle(number, Verdicts::Each(verdicts), None);
        }
    }

    fn delivered(&mut self, it: &Delivery, at_us: u64) {
        let who = customer_of(it);
        let last = self.last.insert(who, it.due_ms);
        assert!(last.is_none_or(|last| last <= it.due_ms), "customer {who} is out of order");
        let (delivered, _, late_us) = &mut self.result.customers[who];
        *delivered += 1;
        *late_us = (*late_us).max(it.lateness_us);
        if self.plan.outage.is_some_and(|(_, to_us, _)| at_us >= to_us) {
            self.result.first_after_us.get_or_insert(at_us);
        }
    }

    fn note_events(&mut self) {
        let events = self.world.engine.take_events();
        self.result.downs += events.iter().filter(|it| matches!(it, Event::Down { .. })).count();
        while let Some((letters, through)) = self.world.engine.take_letters() {
            for letter in letters {
                let text = String::from_utf8(letter.record).unwrap();
                let id = text.split("\"id\":\"").nth(1).unwrap().split('-').next().unwrap();
                self.result.customers[id.parse::<usize>().unwrap()].1 += 1;
            }
            self.world.engine.letters_taken(through);
            self.world.write();
        }
    }

    fn restart(&mut self) {
        self.in_flight.clear();
        self.flights.clear();
        self.last.clear();
        let settings = Settings::default();
        let world = std::mem::replace(&mut self.world, ByHand::start(settings));
        self.world = world.again();
        self.set_places();
        self.began_us = self.now_us;
    }
}

/// Bad customers first, then healthy ones.
fn mixed(bad: usize, kind: Customer, healthy: usize) -> Vec<Customer> {
    std::iter::repeat_n(kind, bad).chain(std::iter::repeat_n(Customer::Healthy, healthy)).collect()
}

impl Result {
    fn latest_healthy_us(&self, plan: &Plan) -> i64 {
        let healthy = plan.customers.iter().zip(&self.customers).filter(|(it, _)| **it == Customer::Healthy);
        healthy
            .map(|(_, (delivered, dead, late_us))| {
                assert_eq!((*delivered, *dead), (plan.messages, 0), "a healthy customer");
                *late_us
            })
            .max()
            .unwrap_or(0)
    }
}

const KINDS: [Customer; 7] = [
    Customer::Gone,
    Customer::Silent,
    Customer::Answers(500),
    Customer::Answers(503),
    Customer::Answers(404),
    Customer::Slow(3 * S_US),
    Customer::Flaps(S_US),
];

#[test]
fn forty_bad_customers_of_any_kind_make_a_hundred_healthy_ones_a_second_late_at_most__d6() {
    for kind in KINDS {
        let plan = Plan::new(mixed(40, kind, 100));
        let result = Play::of(plan.clone());
        let late_us = result.latest_healthy_us(&plan);
        assert!(late_us <= 40 * 100_000 / 8 + 300_000, "{kind:?}: {late_us} us late");
        assert_eq!(result.downs, 0, "{kind:?}");
    }
}

#[test]
fn customers_that_are_always_a_little_slow_take_no_ordinary_place_after_the_first_send__d6() {
    let mut plan = Plan::new(mixed(40, Customer::Slow(120_000), 100));
    (plan.messages, plan.within_us) = (40, 20 * S_US);
    let result = Play::of(plan.clone());
    let late_us = result.latest_healthy_us(&plan);
    assert!(late_us <= 40 * 100_000 / 8 + 300_000, "{late_us} us late");
}

#[test]
fn without_spare_places_bad_customers_get_half_of_the_places_after_the_first_contact__d6() {
    let plan = Plan {
        young: 4,
        spare: 0,
        within_us: 200 * S_US,
        until_us: 400 * S_US,
        ..Plan::new(mixed(6, Customer::Silent, 30))
    };
    let result = Play::of(plan.clone());
    let late_us = result.latest_healthy_us(&plan);
    assert!(late_us <= 6 * TIME_OUT_US as i64 / 4 + 300_000, "{late_us} us late");
}

#[test]
fn without_spare_places_the_first_contact_with_many_that_hang_is_over_in_time__d6() {
    for (kind, takes_us) in [(Customer::Silent, TIME_OUT_US), (Customer::Slow(S_US), S_US)] {
        let plan =
            Plan { young: 4, spare: 0, within_us: S_US, until_us: 1_000 * S_US, ..Plan::new(mixed(40, kind, 100)) };
        let result = Play::of(plan.clone());
        let late_us = result.latest_healthy_us(&plan);
        let own_us = 300 * USUAL_US / 4;
        let bound_us = 40 * takes_us / 4 + 300_000 + own_us;
        assert!(late_us <= bound_us as i64, "{kind:?}: {late_us} us late, and the bound is {bound_us}");
        let tried = result.customers[..40].iter().filter(|it| it.2 > 0).count();
        assert!(kind == Customer::Silent || tried == 40, "{tried} of those that are slow came");
    }
}

#[test]
fn a_whole_outage_costs_no_message_however_it_is_told__d6() {
    for (kind, restart_us) in [
        (Customer::Gone, None),
        (Customer::Answers(503), None),
        (Customer::Answers(500), None),
        (Customer::Silent, None),
        (Customer::Gone, Some(40 * S_US)),
        (Customer::Answers(500), Some(40 * S_US)),
    ] {
        let plan = Plan {
            messages: 20,
            within_us: 120 * S_US,
            outage: Some((20 * S_US, 80 * S_US, kind)),
            restart_us,
            until_us: 400 * S_US,
            ..Plan::new(mixed(0, Customer::Healthy, 100))
        };
        let result = Play::of(plan.clone());
        result.latest_healthy_us(&plan);
        let first_us = result.first_after_us.unwrap() - 80 * S_US;
        assert!(first_us <= 10 * S_US + TIME_OUT_US, "{kind:?}: the first one comes after {first_us} us");
        assert!(result.tries_in_outage <= 400, "{kind:?}: {} tries", result.tries_in_outage);
        assert!(result.downs >= 1, "{kind:?}");
    }
}

#[test]
fn fewer_than_five_keys_are_never_an_outage_and_each_waits_by_itself__d6() {
    let plan = Plan { until_us: 300 * S_US, ..Plan::new(vec![Customer::Gone; 4]) };
    let result = Play::of(plan);
    assert_eq!((result.downs, result.customers.iter().map(|it| it.0 + it.1).sum::<usize>()), (0, 0));
    assert!(result.sends <= 4 * 12, "{} sends", result.sends);
}

#[test]
fn many_new_keys_that_fail_are_no_outage_for_those_that_were_accepted__d6() {
    let plan =
        Plan { messages: 2, within_us: 60 * S_US, until_us: 120 * S_US, ..Plan::new(mixed(3_000, Customer::Gone, 60)) };
    let result = Play::of(plan.clone());
    let late_us = result.latest_healthy_us(&plan);
    assert!(result.downs > 0, "two healthy messages a second leave gaps");
    assert!(late_us <= 3_000_000, "{late_us} us late");
}

#[test]
fn a_poisoned_message_is_a_dead_letter_and_the_rest_of_its_key_comes__d6() {
    let plan = Plan { until_us: 600 * S_US, ..Plan::new(mixed(3, Customer::Poisoned, 20)) };
    let result = Play::of(plan.clone());
    result.latest_healthy_us(&plan);
    assert!(result.customers[..3].iter().all(|it| (it.0, it.1) == (2, 1)), "{:?}", &result.customers[..3]);
}

fn random_plan(seed: u64) -> Plan {
    let mut random = fastrand::Rng::with_seed(seed);
    let spare = random.usize(1..40);
    let bad = random.usize(0..=spare.min(20));
    let mut customers = Vec::new();
    for _ in 0..bad {
        customers.push(match random.usize(0..8) {
            7 => Customer::Poisoned,
            kind => KINDS[kind],
        });
    }
    customers.extend([Customer::Healthy; 25]);
    random.shuffle(&mut customers);
    Plan {
        young: random.usize(1..12),
        spare,
        messages: random.usize(1..4),
        within_us: S_US * random.u64(1..20),
        until_us: 40 * S_US,
        seed,
        ..Plan::new(customers)
    }
}

fn play(seed: u64) {
    let plan = random_plan(seed);
    let result = Play::of(plan.clone());
    let bad = plan.customers.iter().filter(|it| **it != Customer::Healthy).count();
    let late_us = result.latest_healthy_us(&plan);
    // Healthy messages that are due together wait for one another, whatever the bad customers do.
    let own_us = (plan.messages * 25) as u64 * USUAL_US / plan.young as u64;
    let bound_us = (bad * 100_000 / plan.young + 300_000) as u64 + own_us;
    assert!(late_us as u64 <= bound_us, "{late_us} us late, and the bound is {bound_us}: {plan:?}");
}

#[test]
fn whatever_bad_customers_do_healthy_ones_are_late_within_the_bound__d6() {
    play_seeds(60, |seed, _| play(seed));
}
