//! Plans for single rules: bad customers beside healthy ones, without an outage.

use super::{Customer, Kind, Plan, Play, S_US, TIME_OUT_US, USUAL_US, customers, mixed};

const KINDS: [Kind; 8] = [
    Kind::Gone,
    Kind::Silent,
    Kind::Stays,
    Kind::Answers(500),
    Kind::Answers(503),
    Kind::Answers(404),
    Kind::Slow(3 * S_US),
    Kind::Flaps(S_US),
];

#[test]
fn forty_bad_customers_of_any_kind_make_a_hundred_healthy_ones_a_second_late_at_most__d6() {
    for kind in KINDS {
        let plan = Plan::new(mixed(40, kind, 100));
        let result = Play::of(plan.clone());
        let late_us = result.latest_healthy_us(&plan);
        assert!(late_us <= 40 * 100_000 / 8 + 300_000, "{kind:?}: {late_us} us late");
        assert_eq!(result.downs_us, [0_u64; 0], "{kind:?}");
    }
}

#[test]
fn customers_that_are_always_a_little_slow_take_no_ordinary_place_after_the_first_send__d6() {
    let plan = Plan::new(mixed(40, Kind::Slow(120_000), 100)).with_messages(40, 20 * S_US);
    let result = Play::of(plan.clone());
    let late_us = result.latest_healthy_us(&plan);
    assert!(late_us <= 40 * 100_000 / 8 + 300_000, "{late_us} us late");
}

#[test]
fn without_spare_places_bad_customers_get_half_of_the_places_after_the_first_contact__d6() {
    let plan = Plan { young: 4, spare: 0, until_us: 400 * S_US, ..Plan::new(mixed(6, Kind::Silent, 30)) };
    let plan = plan.with_messages(3, 200 * S_US);
    let result = Play::of(plan.clone());
    let late_us = result.latest_healthy_us(&plan);
    assert!(late_us <= 6 * TIME_OUT_US as i64 / 4 + 300_000, "{late_us} us late");
}

#[test]
fn without_spare_places_the_first_contact_with_many_that_hang_is_over_in_time__d6() {
    for (kind, takes_us) in [(Kind::Silent, TIME_OUT_US), (Kind::Slow(S_US), S_US)] {
        let plan = Plan { young: 4, spare: 0, until_us: 1_000 * S_US, ..Plan::new(mixed(40, kind, 100)) };
        let plan = plan.with_messages(3, S_US);
        let result = Play::of(plan.clone());
        let late_us = result.latest_healthy_us(&plan);
        let own_us = 300 * USUAL_US / 4;
        let bound_us = 40 * takes_us / 4 + 300_000 + own_us;
        assert!(late_us <= bound_us as i64, "{kind:?}: {late_us} us late, and the bound is {bound_us}");
        let tried = result.customers[..40].iter().filter(|it| it.late_us > 0).count();
        assert!(kind == Kind::Silent || tried == 40, "{tried} of those that are slow came");
    }
}

#[test]
fn fewer_than_five_keys_are_never_an_outage_and_each_waits_by_itself__d6() {
    let plan = Plan { until_us: 300 * S_US, ..Plan::new(customers(4, Kind::Gone)) };
    let result = Play::of(plan);
    assert_eq!(result.downs_us, [0_u64; 0]);
    assert!(result.customers.iter().all(|it| (it.delivered, it.dead.len()) == (0, 0)));
    assert!(result.sends <= 4 * 12, "{} sends", result.sends);
}

#[test]
fn many_new_keys_that_fail_are_no_outage_for_those_that_were_accepted__d6() {
    let plan = Plan { until_us: 120 * S_US, ..Plan::new(mixed(3_000, Kind::Gone, 60)) }.with_messages(2, 60 * S_US);
    let result = Play::of(plan.clone());
    let late_us = result.latest_healthy_us(&plan);
    assert!(late_us <= 3_000_000, "{late_us} us late");
}

/// All messages are keys of their own, and those that are refused are many more.
#[test]
fn many_messages_without_keys_that_fail_are_no_outage_for_a_few_healthy_ones__d6() {
    let without_key =
        |kind, messages, from_us| Customer { kind, has_key: false, messages, from_us, until_us: 70 * S_US };
    let all = vec![without_key(Kind::Gone, 4_000, 10 * S_US), without_key(Kind::Healthy, 140, 0)];
    let plan = Plan { until_us: 120 * S_US, ..Plan::new(all) };
    let result = Play::of(plan.clone());
    let late_us = result.latest_healthy_us(&plan);
    assert!(late_us <= 10_000_000, "{late_us} us late, down at {:?} us", result.downs_us);
}

#[test]
fn a_poisoned_message_is_a_dead_letter_and_the_rest_of_its_key_comes__d6() {
    let plan = Plan { until_us: 600 * S_US, ..Plan::new(mixed(3, Kind::Poisoned, 20)) };
    let result = Play::of(plan.clone());
    result.latest_healthy_us(&plan);
    let bad = &result.customers[..3];
    assert!(bad.iter().all(|it| (it.delivered, it.dead.len()) == (2, 1)), "{bad:?}");
}
