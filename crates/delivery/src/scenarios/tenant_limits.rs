//! What one tenant may do: its weight, its limits, its pause (D24).

use std::collections::BTreeMap;
use std::time::Duration;

use super::destinations::{pause, world};
use super::neighbours::limits;
use super::tenants::{backlog, count, of, taken};
use super::testing::{ByHand, START_MS, arrives, play_seeds, put};
use crate::base::error::DeliveryError;
use crate::due::tenants::MOST_TALLIED;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item, TenantChange};
use crate::message::named::TenantSettings;
use crate::run::engine::tenants::TenantSeen;
use crate::run::settings::{Settings, check_tenant};
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
use crate::store::sql::failing;

pub(super) fn change(name: &str, change: TenantChange) -> Item {
    Item::ChangeTenant { name: name.to_owned(), change }
}

pub(super) fn set_tenant(name: &str, settings: &str) -> Item {
    check_tenant(settings).unwrap();
    change(name, TenantChange::Set(settings.to_owned()))
}

pub(super) fn pause_tenant(name: &str, is_paused: bool) -> Item {
    change(name, TenantChange::Pause(is_paused))
}

pub(super) fn remove(name: &str) -> Item {
    change(name, TenantChange::Remove)
}

fn settle(world: &ByHand, taken: Vec<(u64, Delivery)>) {
    for (number, _) in taken {
        world.engine.settle(number, Verdicts::Delivered, None);
    }
}

#[test]
fn a_tenant_is_set_paused_and_removed_and_its_messages_stay__d24() {
    use Answer::{Accepted, Paused, Removed, Replaced, Resumed, Unknown};
    let world = ByHand::start(Settings::default());
    let items = vec![
        set_tenant("a", r#"{"concurrency":3,"rate":"5/s","weight":7}"#),
        set_tenant("a", r#"{"weight":2}"#),
        pause_tenant("a", true),
        pause_tenant("b", true),
        pause_tenant("c", false),
        remove("c"),
        set_tenant("d", r#"{"concurrency":1,"paused":true}"#),
        set_tenant("d", r#"{"concurrency":2}"#),
        of("d", None, None, "1", START_MS),
    ];
    assert_eq!(world.give(items), [Accepted, Replaced, Paused, Paused, Resumed, Unknown, Accepted, Replaced, Accepted]);
    let seen = |world: &ByHand| world.engine.tenants().unwrap();
    let is_paused = |paused| TenantSettings { paused: Some(paused), ..TenantSettings::default() };
    let expected = BTreeMap::from([
        ("a".to_owned(), TenantSettings { weight: Some(2), ..is_paused(true) }),
        ("b".to_owned(), is_paused(true)),
        ("d".to_owned(), TenantSettings { concurrency: Some(2), ..is_paused(true) }),
    ]);
    assert_eq!(seen(&world), expected);
    let world = world.again();
    assert_eq!(seen(&world), expected);
    assert!(world.pass_ms(5_000, arrives).is_empty(), "it is paused");
    assert_eq!(world.give(vec![remove("d"), pause_tenant("b", false), remove("a")]), [Removed, Resumed, Removed]);
    assert_eq!(seen(&world), BTreeMap::from([("b".to_owned(), is_paused(false))]));
    assert_eq!(world.pass_ms(10, arrives).len(), 1);
}

#[test]
fn what_a_tenant_may_not_be_set_to_is_refused_with_a_sentence__d24() {
    let refused = |json: &str| match check_tenant(json).unwrap_err() {
        DeliveryError::Usage(text) => text,
        error => panic!("{error}"),
    };
    assert!(refused(r#"{"weight":0}"#).starts_with("weight is 0"), "{}", refused(r#"{"weight":0}"#));
    assert!(refused(r#"{"weight":101}"#).starts_with("weight is 101"));
    assert!(refused(r#"{"concurrency":0}"#).starts_with("concurrency is 0"));
    assert!(refused(r#"{"rate":"5"}"#).contains("write it as 100/s"));
    assert!(refused(r#"{"url":"http://x/"}"#).starts_with("the settings can't be read"));
    let world = ByHand::start(Settings { is_global: true, ..Settings::default() });
    assert_eq!(world.give(vec![set_tenant("a", "{}"), pause_tenant("a", true)]), [Answer::Refused; 2]);
}

#[test]
fn a_limit_that_is_set_lower_is_kept_as_the_messages_that_are_out_end__d24() {
    let world = world(Settings::default(), &["x", "y"]);
    let to =
        |to: &str| -> Vec<Item> { (0..40).map(|id| of("a", Some(to), None, &format!("{to}{id}"), START_MS)).collect() };
    world.give([to("x"), to("y")].concat());
    let mut out = taken(&world);
    assert!(out.len() >= 8, "without a limit: {}", out.len());
    world.give(vec![set_tenant("a", r#"{"concurrency":3}"#)]);
    while out.len() > 3 {
        assert!(taken(&world).is_empty(), "{} are out", out.len());
        settle(&world, vec![out.remove(0)]);
    }
    for most in [3, 1, 2, 5] {
        world.give(vec![set_tenant("a", &format!(r#"{{"concurrency":{most}}}"#))]);
        for _ in 0..6 {
            let (before, new) = (out.len(), taken(&world));
            assert_eq!(new.len(), usize::saturating_sub(most, before), "{most}, and {before} are out");
            out.extend(new);
            settle(&world, vec![out.remove(0)]);
        }
    }
    world.give(vec![remove("a")]);
    out.extend(taken(&world));
    assert!(out.len() >= 8, "the usual ones again: {}", out.len());
}

#[test]
fn a_limit_of_three_is_never_passed_whatever_is_moved_paused_or_hangs__d24() {
    let world = world(Settings { sink_timeout_ms: 1_000, ..Settings::default() }, &["x", "y"]);
    world.give(vec![set_tenant("a", r#"{"concurrency":3}"#)]);
    let mut random = fastrand::Rng::with_seed(5);
    let (mut out, mut most, mut sent) = (Vec::new(), 0, 0);
    for step in 0..3_000 {
        match random.u8(0..12) {
            0..4 => {
                let to = ["x", "y"][random.usize(0..2)];
                let key = random.bool().then(|| format!("k{}", random.u8(0..3)));
                world.give(vec![
                    of("a", Some(to), key.as_deref(), &format!("a{step}"), world.wall_ms() + random.i64(-9..900)),
                    of("b", Some(to), None, &format!("b{step}"), world.wall_ms()),
                ]);
            }
            4 => {
                let it = format!("a{}", random.i32(0..step.max(1)));
                let due_ms = world.wall_ms() + random.i64(-9..2_000);
                for key in [None, Some("k0"), Some("k1"), Some("k2")] {
                    let (id, key) = (it.clone(), key.map(str::to_owned));
                    world.give(vec![Item::Reschedule(crate::message::Reschedule { id, key, due_ms })]);
                }
            }
            5 => drop(world.give(vec![pause_tenant("a", random.bool())])),
            6 => drop(world.give(vec![pause(["x", "y"][random.usize(0..2)], random.u8(0..3) == 0)])),
            7 => world.advance_ms(random.u64(0..1_500)), // what is out may be cut off, and goes on
            8 => world.advance_ms(1),
            _ => {
                while !out.is_empty() && random.u8(0..3) > 0 {
                    settle(&world, vec![out.swap_remove(random.usize(0..out.len()))]);
                }
            }
        }
        out.extend(taken(&world));
        let now = count(&out, "a");
        assert!(now <= 3, "{now} are out");
        (most, sent) = (most.max(now), sent + now);
        world.write();
    }
    assert!(most == 3 && sent > 1_000, "{most} {sent}");
}

#[test]
fn weights_are_kept_and_count_from_the_next_turn__d24() {
    let world = ByHand::start(Settings::default());
    world.engine.set_places(limits(7, 0));
    let weights = [("a", 1), ("b", 2), ("c", 4)];
    let set = weights.map(|(name, weight)| set_tenant(name, &format!(r#"{{"weight":{weight}}}"#)));
    world.give(set.into());
    world.give(weights.iter().flat_map(|(name, _)| backlog(name, 3_000)).collect());
    let serve = |most: usize| {
        let mut served: BTreeMap<String, usize> = BTreeMap::new();
        while served.values().sum::<usize>() < 2_800 {
            let (number, deliveries) = world.engine.take(most, usize::MAX, false).unwrap();
            for it in &deliveries {
                *served.entry(it.body.tenant().unwrap().to_owned()).or_default() += 1;
            }
            world.engine.settle(number, Verdicts::Delivered, None);
        }
        served.into_values().collect::<Vec<_>>()
    };
    let is_about = |count: usize, share: usize| (count * 10).abs_diff(share * 10) <= share;
    let served = serve(3);
    assert!(served.iter().zip([400, 800, 1_600]).all(|(count, share)| is_about(*count, share)), "{served:?}");
    world.give(vec![set_tenant("a", r#"{"weight":4}"#), remove("c")]);
    let served = serve(64);
    assert!(served.iter().zip([1_600, 800, 400]).all(|(count, share)| is_about(*count, share)), "{served:?}");
}

/// Memory is full from the start on, and the first tenants put their messages first each time.
#[test]
fn a_thousand_tenants_with_equal_loads_above_the_capacity_are_served_alike_for_a_minute__d24() {
    let bounds = Bounds { messages: 20_000, ..Bounds::default() };
    let world = ByHand::start(Settings { bounds, ..Settings::default() });
    world.engine.set_places(limits(4, 4));
    let mut random = fastrand::Rng::with_seed(3);
    let mut served = vec![0_u32; 1_000];
    let mut out: Vec<(u64, Vec<Delivery>)> = Vec::new();
    for step in 0..75 {
        // Each puts one message in 0.8 s, some with a key, and there is capacity for 0.7 of them. At first it has 20.
        let all = (0..if step == 0 { 20_000 } else { 1_000 }).map(|it| (it % 1_000, it / 1_000));
        let puts = all.map(|(it, place)| {
            let (key, id) = ((it % 3 == 0).then(|| format!("k{}", step % 4)), format!("{it} {step} {place}"));
            of(&format!("t{it:03}"), None, key.as_deref(), &id, world.wall_ms() + 50)
        });
        world.give(puts.collect());
        for tick in 0..100 {
            world.advance_ms(8);
            for (number, deliveries) in std::mem::take(&mut out) {
                for it in &deliveries {
                    served[it.body.tenant().unwrap()[1..].parse::<usize>().unwrap()] += 1;
                }
                world.engine.settle(number, Verdicts::Delivered, None);
            }
            if tick % 5 == 0 {
                world.write();
            }
            let mut free = 7;
            while free > 0
                && let Some(taken) = world.engine.take(random.usize(1..=free), usize::MAX, false)
            {
                free -= taken.1.len();
                out.push(taken);
            }
        }
    }
    let (least, most) = (*served.iter().min().unwrap(), *served.iter().max().unwrap());
    let sum: u32 = served.iter().sum();
    assert!(most - least <= most / 20 && sum > 50_000, "{least} to {most}, {sum} together");
}

#[test]
fn nothing_of_a_paused_tenant_is_sent_and_nothing_else_waits_for_it__d24() {
    let world = world(Settings::default(), &["x", "y"]);
    world.give(vec![pause_tenant("a", true)]);
    for number in 0..2_000 {
        let to = ["x", "y"][number % 2];
        world.give(vec![of("a", Some(to), None, &format!("a{number}"), START_MS)]);
    }
    world.give((0..20).map(|id| of("b", Some("x"), None, &format!("b{id}"), START_MS)).collect());
    let sent = world.pass_ms(1_000, arrives);
    assert!(sent.len() == 20 && sent.iter().all(|it| it.body.tenant() == Some("b")), "{}", sent.len());
    // A failed group: the store is opened anew.
    let _ = world.submit(vec![pause_tenant("c", true)]);
    failing::after(0);
    while world.engine.write(&|| Ok(())).is_ok() {}
    failing::end();
    world.engine.open_anew(&|| Ok(())).unwrap();
    assert!(world.pass_ms(1_000, arrives).is_empty());
    let world = world.again();
    world.engine.take_named(TakesNamed::All).unwrap();
    assert!(world.pass_ms(1_000, arrives).is_empty());
    world.give(vec![pause_tenant("a", false)]);
    assert_eq!(world.pass_ms(1_000, arrives).len(), 2_000);
}

#[test]
fn a_rate_of_one_tenant_holds_over_each_second_and_changes_with_the_next_send__d24() {
    let world = ByHand::start(Settings::default());
    world.give(vec![set_tenant("a", r#"{"rate":"20/s"}"#)]);
    world.give([backlog("a", 400), backlog("b", 3)].concat());
    let mut sent_ms = Vec::new();
    for now_ms in 0..9_000_u64 {
        if now_ms == 5_000 {
            world.give(vec![set_tenant("a", r#"{"rate":"50/s"}"#)]);
        }
        let now = taken(&world);
        sent_ms.extend(std::iter::repeat_n(now_ms, count(&now, "a")));
        settle(&world, now);
        world.write();
        world.advance_ms(1);
    }
    let within = |from_ms: u64| sent_ms.iter().filter(|at| (from_ms..from_ms + 1_000).contains(*at)).count();
    assert!((0..4_000).all(|from_ms| (19..=22).contains(&within(from_ms))));
    assert!((5_000..8_000).all(|from_ms| (49..=55).contains(&within(from_ms))), "{}", within(5_000));
}

#[test]
fn a_destination_that_is_down_is_tried_with_no_message_of_a_paused_tenant__d6_d24() {
    let world = world(Settings::default(), &["x", "y"]);
    let to = |tenant: &str, to: &str, count: usize| -> Vec<Item> {
        (0..count)
            .map(|id| of(tenant, Some(to), Some(&id.to_string()), &format!("{tenant}{to}{id}"), START_MS))
            .collect()
    };
    world.give([to("a", "x", 10), to("b", "x", 10), to("b", "y", 10)].concat());
    let fails = |it: &Delivery| match it.body.destination() {
        Some("x") => Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None },
        _ => Verdict::Delivered,
    };
    let sent = world.pass_ms(30_000, fails);
    assert_eq!(sent.iter().filter(|it| it.body.destination() == Some("y")).count(), 10);
    assert!(world.engine.lock_dispatcher().is_any_down());
    world.give(vec![pause_tenant("a", true)]);
    let sent = world.pass_ms(60_000, fails);
    assert!(sent.len() > 50 && sent.iter().all(|it| it.body.tenant() == Some("b")), "{}", sent.len());
    let sent = world.pass_ms(60_000, arrives);
    assert!(sent.len() == 10 && sent.iter().all(|it| it.body.tenant() == Some("b")), "{}", sent.len());
    world.give(vec![pause_tenant("a", false)]);
    assert_eq!(world.pass_ms(60_000, arrives).len(), 10);
}

/// The sends of 200 keys of *a* fail, then those of ten of *b*, and all are told to wait for an hour. Then the destination is
/// back. Returns after how many seconds a message arrives.
fn goes_on_after_s(is_paused: bool) -> u64 {
    let world = world(Settings::default(), &["x"]);
    let to = |tenant: &str, count: usize, after_ms: i64| -> Vec<Item> {
        let id = |it| format!("{tenant}{it}");
        (0..count).map(|it| of(tenant, Some("x"), Some(&id(it)), &id(it), START_MS + after_ms)).collect()
    };
    world.give([to("a", 200, 0), to("b", 10, 400)].concat());
    let fails = |_: &Delivery| Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: Some(3_600_000) };
    while !world.engine.lock_dispatcher().is_any_down() {
        world.pass_ms(100, fails);
    }
    world.pass_ms(3_000, fails);
    world.give(vec![pause_tenant("a", is_paused)]);
    (0..600).find(|_| !world.pass_ms(1_000, arrives).is_empty()).unwrap_or(600)
}

#[test]
fn an_outage_is_no_longer_beside_keys_of_a_paused_tenant__d6_d24() {
    let (without, with) = (goes_on_after_s(false), goes_on_after_s(true));
    assert!(with <= without + 3, "{with} s, and {without} s without a pause");
}

#[test]
fn an_outage_ends_when_only_messages_of_a_paused_tenant_are_left__d6_d24() {
    for (has_key, wait_ms) in [(true, None), (false, None), (true, Some(3_600_000)), (false, Some(3_600_000))] {
        let world = world(Settings::default(), &["x"]);
        let ids = (0..10).map(|id| id.to_string());
        world.give(ids.map(|id| of("a", Some("x"), has_key.then_some(&*id), &id, START_MS)).collect());
        let fails = |_: &Delivery| Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: wait_ms };
        world.pass_ms(3_000, fails);
        assert!(world.engine.lock_dispatcher().is_any_down());
        world.give(vec![pause_tenant("a", true)]);
        world.pass_ms(60_000, fails);
        assert!(!world.engine.lock_dispatcher().is_any_down(), "{has_key} {wait_ms:?}");
        world.give(vec![pause_tenant("a", false)]);
        assert_eq!(world.pass_ms(3_700_000, arrives).len(), 10);
    }
}

#[test]
fn a_closing_engine_sends_what_waits_for_a_call_of_its_tenant_and_not_what_waits_longer__d16_d24() {
    let more = |world: &ByHand| world.engine.lock_dispatcher().has_more_to_send(Duration::from_secs(1));
    let settings = Settings { tenant_concurrency: Some(1), sink_timeout_ms: 1_000, ..Settings::default() };
    let world = ByHand::start(settings.clone());
    world.give(backlog("a", 3));
    for left in [2, 1, 0] {
        let taken = taken(&world);
        assert_eq!((taken.len(), more(&world)), (1, left > 0), "{left} are left");
        settle(&world, taken);
        assert_eq!(more(&world), left > 0, "{left} are left, and none is out");
    }
    for (before, after, how) in [
        ("{}", pause_tenant("a", true), "it is paused"),
        (r#"{"rate":"1/min"}"#, pause_tenant("b", true), "its rate says so"),
        ("{}", pause_tenant("b", true), "its call hangs"),
    ] {
        let world = ByHand::start(settings.clone());
        world.give([vec![set_tenant("a", before)], backlog("a", 3)].concat());
        let first = taken(&world);
        world.give(vec![after]);
        if how == "its call hangs" {
            world.advance_ms(1_001);
        } else {
            settle(&world, first);
        }
        assert!(taken(&world).is_empty() && !more(&world), "{how}");
    }
}

/// Ends the process `times` times while all of it may have been sent.
fn struck(items: Vec<Item>, times: usize) -> ByHand {
    let world = ByHand::start(Settings::default());
    world.give(items);
    (0..times).fold(world, |world, _| {
        for _ in 0..4 {
            taken(&world);
            world.write();
        }
        world.again()
    })
}

#[test]
fn those_with_strikes_of_a_tenant_that_may_send_nothing_hold_up_no_other__d6_d24() {
    for settings in [r#"{"rate":"1/h"}"#, r#"{"concurrency":1}"#, r#"{"paused":true}"#, "{}"] {
        let of_none = vec![put(None, "of none", START_MS)];
        let world = struck([backlog("held", 60), backlog("too", 60), backlog("well", 3), of_none].concat(), 2);
        world.give(vec![set_tenant("held", settings), set_tenant("too", settings), pause_tenant("well", true)]);
        let mut hanging = Vec::new();
        let mut well = 0;
        for step in 0..100 {
            world.write();
            match step {
                1 if settings == "{}" => drop(world.give(vec![pause_tenant("held", true), pause_tenant("too", true)])),
                3 => drop(world.give(vec![pause_tenant("well", false)])), // after the others
                _ => {}
            }
            for (number, it) in taken(&world) {
                if matches!(it.body.tenant(), Some("held" | "too")) {
                    hanging.push(number);
                    continue;
                }
                well += 1;
                world.engine.settle(number, Verdicts::Delivered, None);
            }
            world.advance_ms(100);
        }
        assert_eq!(well, 4, "with {settings}");
        assert!(settings == "{}" || hanging.len() <= 2, "with {settings}: {}", hanging.len());
    }
}

#[test]
fn the_busiest_tenants_are_told_with_what_waits_for_them__d14_d24() {
    let world = ByHand::start(Settings::default());
    assert!(world.engine.tenant_figures(10, &[]).0.is_empty());
    world.give(vec![put(None, "of none", START_MS)]);
    world.give([backlog("a", 200), backlog("b", 3), backlog("c", 30)].concat());
    world.give(vec![of("b", None, None, "soon", START_MS + 3_000), of("d", None, None, "far", START_MS + 999_000)]);
    world.give(vec![pause_tenant("c", true)]);
    world.advance_ms(1_000);
    let mut arrived = 0;
    for _ in 0..7 {
        let (number, deliveries) = world.engine.take(1, usize::MAX, false).unwrap();
        let verdict = match deliveries[0].body.tenant() {
            Some("a") if arrived == 0 => None,
            Some("b") => Some(Verdict::Refused("no".to_owned())),
            _ => Some(Verdict::Delivered),
        };
        arrived += u64::from(deliveries[0].body.tenant() == Some("a"));
        if let Some(verdict) = verdict {
            world.engine.settle(number, Verdicts::Each(vec![verdict]), None);
        }
    }
    world.write();
    let (figures, others) = world.engine.tenant_figures(10, &[]);
    let told = figures.iter().map(|it| (&*it.name, it.overdue, it.waiting, it.failing, it.is_paused, it.out));
    let left = 200 - arrived + 1; // one of a is out
    assert_eq!(
        told.collect::<Vec<_>>(),
        [("a", left, left, 0, false, 1), ("c", 30, 30, 0, true, 0), ("b", 3, 4, 3, false, 0)]
    );
    assert_eq!(figures[1].first_due_ms, Some(START_MS));
    assert_eq!(others, TenantSeen::default());
    let counts = |it: &TenantSeen| (it.delivered, it.late, it.lateness_us, it.failed);
    assert_eq!(counts(&figures[0]), (arrived - 1, 0, 1_000_000 * (arrived - 1), 0), "at most a second is not late");
    assert_eq!([counts(&figures[1]), counts(&figures[2])], [(0, 0, 0, 0), (0, 0, 0, 3)]);
    let (first, rest) = world.engine.tenant_figures(1, &["b".to_owned(), "of none".to_owned()]);
    assert_eq!((&first[..], rest.waiting, rest.overdue), (&figures[2..], left + 30, left + 30));
    assert_eq!(counts(&rest), counts(&figures[0]), "of the others only the sums are told");
}

#[test]
fn an_answer_counts_for_its_tenant_and_its_destination_also_when_nothing_waits__d23_d24() {
    let world = world(Settings::default(), &["to"]);
    world.engine.take_named(TakesNamed::Some).unwrap();
    world.give(vec![of("a", Some("to"), None, "1", START_MS), of("a", None, None, "2", START_MS)]);
    world.advance_ms(1_500);
    world.deliver(|_| Verdict::Delivered);
    let (figures, _) = world.engine.tenant_figures(10, &[]);
    assert_eq!(figures.len(), 1);
    let [it] = &figures[..] else { panic!() };
    assert_eq!((it.waiting, it.delivered, it.late, it.lateness_us), (0, 2, 2, 3_000_000));
    assert_eq!(world.engine.destination_measures(9).unwrap().1[0].delivered, 1);
}

#[test]
fn tenants_beyond_the_first_are_counted_together__d15_d24() {
    let world = ByHand::start(Settings::default());
    let more = 5;
    let names: Vec<String> = (0..MOST_TALLIED + more).map(|number| format!("t{number}")).collect();
    for some in names.chunks(1_000) {
        world.give(some.iter().map(|name| of(name, None, None, name, START_MS)).collect());
        world.deliver(|_| Verdict::Delivered);
    }
    world.give(vec![of("t0", None, None, "again", START_MS)]);
    world.deliver(|_| Verdict::Delivered);
    let (figures, others) = world.engine.tenant_figures(2 * MOST_TALLIED, &[]);
    assert_eq!((figures.len(), others.delivered), (MOST_TALLIED, more as u64));
    assert_eq!((&*figures[0].name, figures[0].delivered), ("t0", 2));
}

fn play_turns(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = ByHand::start(Settings::default());
    let places = random.usize(1..6);
    world.engine.set_places(limits(places, 0));
    let names: Vec<String> = (0..random.usize(2..9)).map(|number| format!("t{number}")).collect();
    world.give(names.iter().flat_map(|name| backlog(name, 900)).collect());
    let mut out = Vec::new();
    for _ in 0..2 {
        let weights: Vec<usize> = names.iter().map(|_| random.usize(1..20)).collect();
        let set = |(name, weight): (&String, &usize)| set_tenant(name, &format!(r#"{{"weight":{weight}}}"#));
        world.give(names.iter().zip(&weights).map(set).collect());
        let sum: usize = weights.iter().sum();
        let mut served = vec![0; names.len()];
        while served.iter().sum::<usize>() < 20 * sum {
            while let Some((number, deliveries)) = world.engine.take(random.usize(1..50), usize::MAX, false) {
                for it in &deliveries {
                    served[it.body.tenant().unwrap()[1..].parse::<usize>().unwrap()] += 1;
                }
                out.push(number);
            }
            world.engine.settle(out.swap_remove(random.usize(0..out.len())), Verdicts::Delivered, None);
            world.write();
        }
        let rounds = served.iter().sum::<usize>() as f64 / sum as f64;
        for (served, weight) in served.iter().zip(&weights) {
            // One turn may go by the weight before, and one may not be over.
            let most_off = (*weight).max(20) as f64 * 1.5 + 1.0;
            assert!(
                (*served as f64 - rounds * *weight as f64).abs() <= most_off,
                "{served} of {weight}, {rounds} rounds"
            );
        }
    }
}

#[test]
fn with_everybody_loaded_what_is_served_follows_the_weights_whatever_they_are__d24() {
    play_seeds(60, |seed, _| play_turns(seed));
}
