//! Plans with an outage of the whole destination.

use super::{Customer, Kind, Plan, Play, S_US, TIME_OUT_US, customers, mixed};

#[test]
fn a_whole_outage_costs_no_message_however_it_is_told__d6() {
    for (kind, restart_us) in [
        (Kind::Gone, None),
        (Kind::Answers(503), None),
        (Kind::Answers(500), None),
        (Kind::Silent, None),
        (Kind::Gone, Some(40 * S_US)),
        (Kind::Answers(500), Some(40 * S_US)),
    ] {
        let plan = Plan {
            outages: vec![(20 * S_US, 80 * S_US, kind)],
            restart_us,
            until_us: 400 * S_US,
            ..Plan::new(customers(100, Kind::Healthy)).with_messages(20, 120 * S_US)
        };
        let result = Play::of(plan.clone());
        result.latest_healthy_us(&plan);
        let first_us = result.first_after_us.unwrap() - 80 * S_US;
        assert!(first_us <= 10 * S_US + TIME_OUT_US, "{kind:?}: the first one comes after {first_us} us");
        assert!(result.tries_in_outage <= 400, "{kind:?}: {} tries", result.tries_in_outage);
        assert!(!result.downs_us.is_empty(), "{kind:?}");
    }
}

#[test]
fn the_time_of_an_outage_is_left_out_also_after_it_for_a_customer_that_stays_gone__d6() {
    let mut all = customers(30, Kind::Healthy);
    for it in &mut all {
        (it.messages, it.until_us) = (20, 200 * S_US);
    }
    all.extend(customers(1, Kind::Gone));
    let outages = vec![(20 * S_US, 80 * S_US, Kind::Gone)];
    let unanswered_for_us = 120 * S_US;
    let result = Play::of(Plan { outages, unanswered_for_us, until_us: 800 * S_US, ..Plan::new(all) });
    let dead = &result.customers[30].dead;
    assert!(dead.len() == 3 && dead.iter().all(|(_, after_us)| *after_us >= 175 * S_US), "{dead:?}");
}

/// All keys have failed when it ends. Most of them had failed before it began.
#[test]
fn an_outage_beside_many_dead_customers_ends_within_a_round__d6() {
    for kind in [Kind::Gone, Kind::Answers(503), Kind::Silent] {
        let plan = Plan {
            outages: vec![(20 * S_US, 80 * S_US, kind)],
            until_us: 400 * S_US,
            ..Plan::new(mixed(200, Kind::Gone, 10)).with_messages(20, 120 * S_US)
        };
        let result = Play::of(plan.clone());
        result.latest_healthy_us(&plan);
        assert!(result.is_awaited);
        let first_us = result.first_after_us.unwrap() - 80 * S_US;
        assert!(first_us <= 10 * S_US + TIME_OUT_US, "{kind:?}: the first one comes after {first_us} us");
    }
}

/// It alone is likely to show that the outage is over.
#[test]
fn a_customer_that_was_accepted_last_and_is_gone_does_not_keep_others_from_a_try__d6() {
    let gone = Customer { kind: Kind::Flaps(300 * S_US), has_key: true, messages: 30, from_us: 0, until_us: 60 * S_US };
    let mut all = vec![gone.clone()];
    all.extend(vec![Customer { kind: Kind::Healthy, from_us: 10 * S_US, messages: 2, ..gone }; 10]);
    for kind in [Kind::Gone, Kind::Answers(500), Kind::Silent] {
        let plan = Plan {
            outages: vec![(8 * S_US, 300 * S_US, kind)], // the first customer is gone for 300 s after it
            until_us: 590 * S_US,
            ..Plan::new(all.clone())
        };
        let result = Play::of(plan.clone());
        result.latest_healthy_us(&plan);
        let first_us = result.first_after_us.unwrap() - 300 * S_US;
        assert!(first_us <= 10 * S_US + TIME_OUT_US, "{kind:?}: the first one comes after {first_us} us");
    }
}

/// All healthy keys are in doubt after two seconds, and new keys that fail come all the time.
#[test]
fn new_keys_that_fail_do_not_keep_those_that_failed_in_a_short_outage_from_a_try__d6() {
    let mut all = customers(2_000, Kind::Gone);
    for it in &mut all {
        (it.messages, it.until_us) = (1, 60 * S_US);
    }
    all.extend(vec![
        Customer { kind: Kind::Healthy, has_key: true, messages: 300, from_us: 0, until_us: 60 * S_US };
        5
    ]);
    let plan = Plan { outages: vec![(20 * S_US, 22 * S_US, Kind::Gone)], until_us: 120 * S_US, ..Plan::new(all) };
    let result = Play::of(plan.clone());
    assert!(!result.downs_us.is_empty());
    let late_us = result.latest_healthy_us(&plan);
    assert!(late_us <= 16_000_000, "{late_us} us late, the first after {:?} us", result.first_after_us);
}

/// A slow key has a spare place, and has not failed.
#[test]
fn new_keys_that_fail_do_not_keep_slow_keys_from_a_try__d6() {
    let mut all = customers(2_000, Kind::Gone);
    for it in &mut all {
        (it.messages, it.from_us, it.until_us) = (1, 10 * S_US, 70 * S_US);
    }
    let slow = Customer { kind: Kind::Slow(S_US / 5), has_key: true, messages: 8, from_us: 0, until_us: 60 * S_US };
    all.extend(vec![slow; 10]);
    let plan = Plan { until_us: 90 * S_US, ..Plan::new(all) };
    let result = Play::of(plan);
    for it in &result.customers[2_000..] {
        assert!(it.delivered == 8 && it.late_us <= 12_000_000, "{it:?}, down at {:?}", result.downs_us);
    }
}

/// When the first and the last healthy message came, after an outage of a minute.
fn after_a_minute(kind: Kind, from_s: u64, all: Vec<Customer>) -> (u64, i64) {
    let back_us = (from_s + 60) * S_US;
    let plan = Plan {
        young: 64,
        spare: 1_024,
        outages: vec![(from_s * S_US, back_us, kind)],
        until_us: 900 * S_US,
        ..Plan::new(all)
    };
    let result = Play::of(plan.clone());
    assert!(!result.downs_us.is_empty(), "{kind:?}");
    let first_us = result.first_after_us.expect("one comes") - back_us;
    (first_us, result.latest_healthy_us(&plan) - 60 * S_US as i64)
}

/// The rows of the model in which the rule was chosen. In each, what was chosen before was slower or more.
#[test]
fn an_outage_of_a_minute_is_over_soon_after_its_end__d6() {
    let healthy = |keys, messages, until_s: u64| {
        vec![Customer { kind: Kind::Healthy, has_key: true, messages, from_us: 0, until_us: until_s * S_US }; keys]
    };
    for (kind, first_s, last_s) in [
        (Kind::Gone, 2, 3),
        (Kind::Answers(503), 2, 3),
        (Kind::Answers(500), 2, 3),
        (Kind::Busy(300), 2, 3),
        (Kind::Silent, 2, 25),
    ] {
        let (first_us, last_us) = after_a_minute(kind, 20, healthy(1_000, 10, 100));
        assert!(first_us <= first_s * S_US && last_us <= last_s * 1_000_000, "{kind:?}: {first_us}, {last_us}");
    }
    for (kind, first_s, last_s) in [(Kind::Gone, 2, 3), (Kind::Silent, 10, 180)] {
        let mut all = healthy(100, 14, 70);
        let dead = if kind == Kind::Gone { Kind::Gone } else { Kind::Silent };
        all.push(Customer { kind: dead, has_key: false, messages: 1_200, from_us: 0, until_us: 200 * S_US });
        let (first_us, last_us) = after_a_minute(kind, 20, all);
        let what = "a dead customer without keys beside keys that failed in the outage";
        assert!(first_us <= first_s * S_US && last_us <= last_s * 1_000_000, "{what}, {kind:?}: {first_us}, {last_us}");
    }
    let (first_us, last_us) = after_a_minute(Kind::Busy(300), 5, healthy(20, 3, 18));
    assert!(first_us <= 2 * S_US && last_us <= 3_000_000, "all keys wait: {first_us}, {last_us}");
}
