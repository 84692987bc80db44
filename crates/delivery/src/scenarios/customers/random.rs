//! Plans from seeds: any customers, with outages, a restart, few places, and few messages. Often they are of some tenants,
//! which may have a limit. The rules for each seed:
//!
//! - Each message of a healthy customer is delivered. If there are M bad customers, and M is not more than the spare places,
//!   it is late by at most M * 0.1 s / concurrency + 0.3 s. The time that healthy messages need for one another is added.
//! - No message of a customer that is back in time becomes a dead letter.
//! - A message without an answer becomes a dead letter when its time is over, or one wait and one place later.
//! - Bad customers make the destination down only by their first failures.
//! - After an outage the first message is delivered within ten seconds and one time-out.

use super::super::testing::play_seeds;
use super::{Came, Customer, Kind, Plan, Play, Result, S_US, TIME_OUT_US, USUAL_US};

/// The longest wait of a key.
const LONGEST_WAIT_US: u64 = 300 * S_US;

const BAD: [Kind; 9] = [
    Kind::Gone,
    Kind::Silent,
    Kind::Stays,
    Kind::Answers(500),
    Kind::Answers(503),
    Kind::Answers(404),
    Kind::Slow(3 * S_US),
    Kind::Flaps(S_US),
    Kind::Poisoned,
];

/// `one` of so many seeds.
fn one_of(random: &mut fastrand::Rng, seeds: usize) -> bool {
    random.usize(0..seeds) == 0
}

fn random_customers(random: &mut fastrand::Rng, bad: usize) -> Vec<Customer> {
    let is_lull = one_of(random, 4);
    let until_us = S_US * if is_lull { random.u64(30..90) } else { random.u64(1..20) };
    let messages = random.usize(1..if is_lull { 3 } else { 8 });
    let kind_of = |random: &mut fastrand::Rng, place| {
        if place < bad { BAD[random.usize(0..BAD.len())] } else { Kind::Healthy }
    };
    let healthy = if is_lull { random.usize(6..20) } else { 25 };
    let mut all: Vec<Customer> = (0..bad + healthy)
        .map(|place| {
            let kind = kind_of(random, place);
            Customer { kind, has_key: !one_of(random, 10), messages, from_us: 0, until_us }
        })
        .collect();
    random.shuffle(&mut all);
    all
}

fn random_outages(random: &mut fastrand::Rng) -> Vec<(u64, u64, Kind)> {
    let kinds = [Kind::Gone, Kind::Answers(503), Kind::Answers(500), Kind::Silent, Kind::Busy(60)];
    let kind = kinds[random.usize(0..kinds.len())];
    let from_us = random.u64(0..10) * S_US;
    match random.usize(0..8) {
        0 => (0..30).map(|s| (from_us + 2 * s * S_US, from_us + (2 * s + 1) * S_US, kind)).collect(),
        1 => vec![(from_us, from_us + 600 * S_US, kind)],
        2 | 3 => vec![(from_us, from_us + random.u64(9..100) * S_US, kind)],
        _ => Vec::new(),
    }
}

fn random_plan(seed: u64) -> Plan {
    let random = &mut fastrand::Rng::with_seed(seed);
    let spare = if one_of(random, 6) { 0 } else { random.usize(1..40) };
    let spare_bytes = if one_of(random, 4) { random.usize(1..40) } else { usize::MAX };
    let bad = if one_of(random, 5) { random.usize(20..60) } else { random.usize(0..=spare.min(20)) };
    let outages = random_outages(random);
    let mut customers = random_customers(random, bad);
    let back_us = outages.iter().map(|it| it.1).max().unwrap_or(0);
    let restart_us = one_of(random, 4).then(|| random.u64(1..back_us.max(20 * S_US)));
    let gives_up = one_of(random, 3);
    if let Some((from_us, ..)) = outages.first().filter(|_| gives_up) {
        // Five keys have a message in the outage. With fewer, each waits by itself, and its time counts.
        for it in customers.iter_mut().filter(|it| it.kind == Kind::Healthy) {
            (it.messages, it.until_us) = (it.messages.max(4), it.until_us.max(from_us + 30 * S_US));
        }
    }
    // The longest time for which a customer may be gone without an outage, and then some.
    let unanswered_for_us = if gives_up { random.u64(120..300) * S_US } else { 86_400 * S_US };
    let tenants = if one_of(random, 2) { 0 } else { random.usize(1..5) };
    let most = (tenants > 0 && one_of(random, 3)).then(|| random.usize(2..8));
    let plan = Plan {
        tenants: (tenants, most),
        young: random.usize(if spare == 0 { 4 } else { 1 }..12),
        spare,
        spare_bytes,
        outages,
        restart_us,
        unanswered_for_us,
        seed,
        ..Plan::new(customers)
    };
    let until_us = if gives_up { latest_end_us(&plan) } else { back_us + 400 * S_US + turns_us(&plan) };
    Plan { until_us, ..plan }
}

fn due_until_us(plan: &Plan) -> u64 {
    plan.customers.iter().map(|it| it.until_us).max().unwrap_or(0)
}

/// When each message without an answer has been given up: it was due, its time was over, and so were the outage, a wait,
/// and the time until a place was free.
fn latest_end_us(plan: &Plan) -> u64 {
    let outages_us = plan.back_us().unwrap_or(0) + 20 * S_US;
    due_until_us(plan) + plan.unanswered_for_us + outages_us + LONGEST_WAIT_US + turns_us(plan)
}

/// The time in which each message can have a place once, however long its call stays.
fn turns_us(plan: &Plan) -> u64 {
    let messages: usize = plan.customers.iter().map(|it| it.messages).sum();
    let places = (plan.young / 2).max(1).max(spare_of(plan)).min(plan.tenants.1.unwrap_or(usize::MAX));
    (messages / places + 2) as u64 * 5 * TIME_OUT_US / 2
}

/// The spare places that have bytes.
fn spare_of(plan: &Plan) -> usize {
    plan.spare.min(plan.spare_bytes)
}

fn check_healthy(plan: &Plan, result: &Result) {
    let late_us = result.latest_healthy_us(plan);
    let bad = plan.customers.iter().filter(|it| it.kind != Kind::Healthy);
    let bad: usize = bad.map(|it| if it.has_key { 1 } else { it.messages }).sum();
    // Those of a tenant wait for its bad customers.
    let is_limited = plan.tenants.1.is_some();
    if is_limited
        || bad > spare_of(plan)
        || !plan.outages.is_empty()
        || plan.restart_us.is_some()
        || !result.downs_us.is_empty()
    {
        return;
    }
    // Healthy messages that are due together wait for one another, whatever the bad customers do.
    let healthy: usize = plan.customers.iter().filter(|it| it.kind == Kind::Healthy).map(|it| it.messages).sum();
    let own_us = healthy as u64 * USUAL_US / plan.young as u64;
    let bound_us = (bad * 100_000 / plan.young + 300_000) as u64 + own_us;
    assert!(late_us as u64 <= bound_us, "{late_us} us late, and the bound is {bound_us}: {plan:?}");
}

/// While the destination is down, no time counts.
fn check_bad(plan: &Plan, it: &Customer, came: &Came, result: &Result) {
    let ended = came.delivered + came.dead.len();
    match it.kind {
        Kind::Flaps(_) if plan.unanswered_for_us < 3_600 * S_US => {} // all its tries may meet it while it is gone
        Kind::Healthy | Kind::Slow(_) | Kind::Flaps(_) => {
            assert_eq!(came.dead.len(), 0, "{it:?} came back, {came:?}: {plan:?}");
        }
        Kind::Poisoned => assert!(came.dead.len() <= 1, "{it:?}, {came:?}: {plan:?}"),
        Kind::Gone | Kind::Silent | Kind::Stays | Kind::Busy(_) | Kind::Answers(503) => {
            let earliest = came.dead.iter().map(|(_, after_us)| *after_us).min();
            assert!(earliest.is_none_or(|us| us >= plan.unanswered_for_us), "{it:?} too early, {came:?}: {plan:?}");
            let may_go_on = plan.unanswered_for_us > 3_600 * S_US || result.is_down;
            assert!(may_go_on || ended == it.messages, "{it:?}, {came:?}: {plan:?}");
        }
        // Eight attempts that count for each message, one message after the other. None counts while it is down.
        Kind::Answers(_) => {
            let may_go_on =
                plan.unanswered_for_us > 3_600 * S_US || !plan.outages.is_empty() || !result.downs_us.is_empty();
            assert!(may_go_on || ended > 0, "{it:?}, {came:?}: {plan:?}");
        }
    }
}

fn check_downs(plan: &Plan, result: &Result) {
    let with_flaps = plan.customers.iter().filter(|it| matches!(it.kind, Kind::Flaps(_)));
    let flaps: usize = with_flaps.map(|it| if it.has_key { 1 } else { it.messages }).sum();
    let Some(accepted_us) = result.accepted_after_new_us else { return };
    if plan.outages.is_empty() && flaps < 5 {
        let late = result.downs_us.iter().find(|down_us| **down_us > accepted_us);
        assert_eq!(late, None, "down by known bad customers, all known at {accepted_us}: {plan:?}");
    }
}

/// After a restart, nothing is known of keys but what the store has. A flapping or a poisoned customer is as likely to be
/// tried as a healthy one.
fn check_first(plan: &Plan, result: &Result) {
    let (Some(back_us), true) = (plan.back_us(), result.is_awaited) else { return };
    let misleads = |it: &Customer| matches!(it.kind, Kind::Flaps(_) | Kind::Poisoned);
    if plan.customers.iter().any(misleads) || plan.tenants.1.is_some() {
        return;
    }
    let first_us = result.first_after_us.expect("one comes") - back_us;
    assert!(first_us <= 10 * S_US + TIME_OUT_US, "the first one comes after {first_us} us: {plan:?}");
}

fn play(seed: u64) {
    let plan = random_plan(seed);
    let result = Play::of(plan.clone());
    check_healthy(&plan, &result);
    for (it, came) in plan.customers.iter().zip(&result.customers) {
        check_bad(&plan, it, came, &result);
    }
    check_downs(&plan, &result);
    check_first(&plan, &result);
}

#[test]
fn whatever_bad_customers_do_healthy_ones_are_late_within_the_bound__d6() {
    play_seeds(60, |seed, _| play(seed));
}
