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
    assert!(late_us <= 12_000_000, "{late_us} us late, the first after {:?} us", result.first_after_us);
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
