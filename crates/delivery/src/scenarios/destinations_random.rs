//! Four destinations and three tenants at random, beside a model of what may be sent (D5, D23, D24): they are paused,
//! limited, removed and set again, calls hang, the process ends, a group fails, and the clock is stepped.

use std::collections::{BTreeMap, BTreeSet};

use super::destinations::{pause, set};
use super::tenant_limits::{pause_tenant, remove as remove_tenant, set_tenant};
use super::testing::{ByHand, answered, play_seeds};
use crate::due::pace::Rate;
use crate::due::places::PlaceLimits;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::message::incoming::{Digest, Incoming};
use crate::message::{Body, Cancel, Extras, Message, Reschedule};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, TakesNamed, Verdict, Verdicts};
use crate::store::Limits;
use crate::store::maintenance::check::tests::assert_whole;
use crate::store::replica::tests::memory::InMemory;
use crate::store::sql::failing;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn remove(name: &str, dead: bool) -> Item {
    Item::RemoveDestination { name: name.to_owned(), dead }
}

/// The tenant of the message with this id.
fn tenant_of(id: &str) -> Option<&'static str> {
    [None, Some("t0"), Some("t1"), Some("t2")][id[1..].parse::<usize>().unwrap() % 4]
}

fn message(to: &str, key: Option<&str>, id: &str, due_ms: i64) -> Item {
    let extras = Extras { destination: Some(to.into()), tenant: tenant_of(id).map(Into::into), ..Extras::default() };
    let body = Body::new(key, id, b"1", true).with_extras(extras);
    Item::Put(Incoming::of(Message { body, due_ms, delay_ms: None }))
}

#[derive(Default)]
struct Model {
    /// The most messages of a tenant that may be out, if it is not set.
    usual_of_tenant: Option<usize>,
    /// The name and the due time of each accepted message.
    open: BTreeMap<String, (String, i64)>,
    /// Delivered, and on disk.
    over: BTreeSet<String>,
    /// Told as delivered, and not on disk.
    told: BTreeSet<String>,
    /// It may have arrived.
    may: BTreeSet<String>,
    out: Vec<(u64, Vec<Delivery>)>,
    /// Sends that were cut off, and whose calls have not returned.
    hanging: Vec<(u64, Vec<Delivery>)>,
    log: Vec<String>,
}

impl Model {
    fn committed(&mut self) {
        self.over.append(&mut self.told);
    }

    fn take(&mut self, world: &ByHand, random: &mut fastrand::Rng) {
        {
            let mut dispatcher = world.engine.lock_dispatcher();
            dispatcher.advance();
            world.engine.flush(&mut dispatcher);
        }
        let (out, over): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.out).into_iter().partition(|(number, _)| world.engine.is_in_flight(*number));
        self.out = out;
        for (number, deliveries) in over {
            self.may.extend(deliveries.iter().map(|it| it.body.id().to_owned()));
            self.hanging.push((number, deliveries));
        }
        while !self.hanging.is_empty() && random.u8(0..4) > 0 {
            let (number, _) = self.hanging.swap_remove(random.usize(0..self.hanging.len()));
            world.engine.settle(number, Verdicts::Delivered, None);
        }
        let tenants = world.engine.tenants().unwrap();
        while let Some((number, deliveries)) = world.engine.take(random.usize(1..4), usize::MAX, true) {
            for it in &deliveries {
                let id = it.body.id().to_owned();
                let (name, due_ms) = self.open.get(&id).unwrap_or_else(|| panic!("{id} is not open: {:?}", self.log));
                assert_eq!((it.body.destination(), it.body.tenant()), (Some(name.as_str()), tenant_of(&id)));
                assert_eq!(it.to.as_ref().map(|to| to.url.clone()), Some(format!("http://{name}.example/")), "{id}");
                let is_paused =
                    world.engine.with_store(|store| store.destination(name).is_some_and(|it| it.paused_ms.is_some()));
                assert!(!is_paused, "{id}: it is paused");
                assert_eq!(it.due_ms, *due_ms, "{id}");
                assert!(it.due_ms <= world.wall_ms(), "{id} is early");
                assert!(!self.over.contains(&id), "{id} is sent again: {:?}", self.log);
                assert!(!self.told.contains(&id), "{id} is sent again before the commit: {:?}", self.log);
                assert!(
                    it.redelivered || !self.may.contains(&id),
                    "{id} may have arrived, and is not marked: {:?}",
                    self.log
                );
                assert!(self.out.iter().flat_map(|(_, it)| it).all(|it| it.body.id() != id), "{id} is out twice");
            }
            let named: BTreeSet<String> =
                deliveries.iter().filter_map(|it| it.body.tenant().map(str::to_owned)).collect();
            self.out.push((number, deliveries));
            for tenant in named {
                let it = tenants.get(&tenant).cloned().unwrap_or_default();
                assert_ne!(it.paused, Some(true), "{tenant} is paused: {:?}", self.log);
                let most = it.concurrency.or(self.usual_of_tenant).unwrap_or(usize::MAX);
                let of_it = |it: &&Delivery| it.body.tenant() == Some(&tenant);
                let out = self.out.iter().chain(&self.hanging).flat_map(|(_, it)| it).filter(of_it).count();
                assert!(out <= most, "{out} of {tenant} are out, and {most} may be: {:?}", self.log);
            }
            if random.u8(0..3) == 0 {
                break;
            }
        }
    }

    fn answer(&mut self, world: &ByHand, random: &mut fastrand::Rng, all: bool) {
        while !self.out.is_empty() {
            let (number, deliveries) = self.out.swap_remove(random.usize(0..self.out.len()));
            if !world.engine.is_in_flight(number) {
                self.may.extend(deliveries.iter().map(|it| it.body.id().to_owned()));
                world.engine.settle(number, Verdicts::Delivered, None); // it was cut off
                continue;
            }
            let each: Vec<Verdict> = deliveries
                .iter()
                .map(|it| {
                    let id = it.body.id().to_owned();
                    let reason = "no".to_owned();
                    match random.u8(0..if all { 4 } else { 10 }) {
                        0..=4 => {
                            self.told.insert(id);
                            Verdict::Delivered
                        }
                        5 => Verdict::Refused(reason),
                        6 => {
                            self.may.insert(id);
                            Verdict::Unanswered { reason, retry_after_ms: random.bool().then_some(5_000) }
                        }
                        _ => Verdict::Unreachable { reason, retry_after_ms: None },
                    }
                })
                .collect();
            world.engine.settle(number, Verdicts::Each(each), None);
            if !all && random.bool() {
                break;
            }
        }
    }

    fn crash(&mut self) {
        self.hanging.clear();
        for (_, deliveries) in std::mem::take(&mut self.out) {
            self.may.extend(deliveries.iter().map(|it| it.body.id().to_owned()));
        }
        self.may.append(&mut self.told);
    }

    fn give(&mut self, world: &ByHand, items: Vec<(Item, String, String, i64)>) {
        let names: Vec<_> = items.iter().map(|it| (it.1.clone(), it.2.clone(), it.3)).collect();
        let answers = world.give(items.into_iter().map(|it| it.0).collect());
        self.committed();
        for ((name, id, due_ms), answer) in names.into_iter().zip(answers) {
            self.log.push(format!("{name} {id} {due_ms} {answer:?}"));
            match answer {
                Answer::Accepted if !id.is_empty() => drop(self.open.insert(id, (name, due_ms))),
                Answer::Rescheduled => self.open.get_mut(&id).unwrap().1 = due_ms,
                Answer::Cancelled => drop(self.open.remove(&id)),
                _ => {}
            }
        }
    }
}

fn start(world: &ByHand) {
    world.engine.take_named(TakesNamed::All).unwrap();
    world.engine.set_places(PlaceLimits { young: 8, spare: 8, ..PlaceLimits::NONE });
}

#[expect(clippy::too_many_lines)]
fn play(seed: u64, is_alone: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let retry = Retry { max_attempts: 1_000, waits_ms: vec![1_000, 20_000], ..Retry::default() };
    let chain = InMemory::default();
    let settings = Settings {
        retry,
        bounds: Bounds { messages: random.usize(5..60), lane_messages: random.usize(2..8), ..Bounds::default() },
        limits: Limits { idle_shares: random.usize(0..3), first_due_times: random.usize(1..5), ..Limits::default() },
        sink_timeout_ms: 3_000,
        tenant_concurrency: random.bool().then(|| random.usize(1..4)),
        tenant_rate: (random.u8(0..4) == 0).then_some(Rate { messages: 3, per_us: 1_000_000 }),
        replicate: seed.is_multiple_of(2).then(|| chain.replicate()),
        ..Settings::default()
    };
    let mut model = Model { usual_of_tenant: settings.tenant_concurrency, ..Model::default() };
    let mut world = ByHand::open(settings);
    start(&world);
    world.begin();
    let set_all = || NAMES.map(|name| (set(name, r#","paused":false"#), name.to_owned(), String::new(), 0)).to_vec_of();
    model.give(&world, set_all());
    let mut next = 0;
    for step in 0..random.usize(50..250) {
        let what = random.u8(0..32);
        if is_alone {
            eprintln!("{step}: {what} {:?}", model.log.last());
        }
        model.log.push(format!("step {step}: {what}"));
        match what {
            0..=7 => {
                let items = (0..random.usize(1..20)).map(|_| {
                    next += 1;
                    let name = NAMES[random.usize(0..4)];
                    let key = random.bool().then(|| format!("k{}", random.u8(0..3)));
                    let due_ms = world.wall_ms()
                        + match random.u8(0..4) {
                            0 => -random.i64(0..5_000),
                            1 => random.i64(0..5_000),
                            2 => random.i64(0..100_000),
                            _ => random.i64(0..10_000_000),
                        };
                    let id = format!("m{next}");
                    (message(name, key.as_deref(), &id, due_ms), name.to_owned(), id, due_ms)
                });
                let items = items.collect();
                model.give(&world, items);
            }
            8..=12 => model.take(&world, &mut random),
            13..=15 => model.answer(&world, &mut random, false),
            16 => {
                world.write();
                model.committed();
            }
            17..=20 => world.advance_ms(random.u64(0..10_000)),
            21 => world.advance_ms(random.u64(0..2_000_000)),
            22 => {
                let name = NAMES[random.usize(0..4)];
                let item = match random.u8(0..4) {
                    0 => set(name, r#","paused":true"#),
                    1 => set(name, [r#","rate":"5/s""#, r#","rate":"1/min""#][random.usize(0..2)]),
                    on => pause(name, on == 2),
                };
                model.give(&world, vec![(item, name.to_owned(), String::new(), 0)]);
            }
            23 => {
                let name = NAMES[random.usize(0..4)];
                let mut items = vec![(remove(name, random.u8(0..4) > 0), name.to_owned(), String::new(), 0)];
                if random.bool() {
                    items.push((set(name, ""), name.to_owned(), String::new(), 0));
                }
                model.give(&world, items);
            }
            24 => model.give(&world, set_all()),
            25 => {
                world = world.again();
                model.crash();
                start(&world);
                world.write();
            }
            26 => {
                // a failed group: no send is in flight then
                model.answer(&world, &mut random, true);
                let name = NAMES[random.usize(0..4)];
                let receipt = world.submit(vec![remove(name, true), set(name, "")]);
                failing::after(random.u32(0..60));
                let mut result = Ok(true);
                while matches!(result, Ok(true)) {
                    result = world.engine.write(&|| Ok(()));
                }
                let has_failed = result.is_err();
                model.log.push(format!("remove and set {name}: failed {has_failed} {:?}", answered(&receipt)));
                failing::end();
                if has_failed {
                    world.engine.open_anew(&|| Ok(())).unwrap();
                }
                world.write();
                model.committed();
            }
            27 => {
                world.step_wall_clock_ms(random.i64(-100_000..100_000));
                world.engine.follow_clock();
                world.write();
                model.committed();
            }
            28 => {
                let key = format!("k{}", random.u8(0..3));
                let item = if random.bool() {
                    Item::pause(Some(key), random.bool())
                } else {
                    Item::Again(crate::group::items::Failing::Key(key))
                };
                model.give(&world, vec![(item, String::new(), String::new(), 0)]);
            }
            29..=30 => {
                let tenant = ["t0", "t1", "t2"][random.usize(0..3)];
                let item = match random.u8(0..6) {
                    0 => remove_tenant(tenant),
                    1 => set_tenant(tenant, [r#"{"rate":"5/s"}"#, r#"{"rate":"2/min"}"#][random.usize(0..2)]),
                    2 => set_tenant(tenant, &format!(r#"{{"weight":{},"paused":false}}"#, random.u8(1..9))),
                    3 => set_tenant(tenant, &format!(r#"{{"concurrency":{}}}"#, random.u8(1..4))),
                    on => pause_tenant(tenant, on == 4),
                };
                model.give(&world, vec![(item, String::new(), String::new(), 0)]);
            }
            _ => {
                let Some((id, (name, _))) = model.open.iter().nth(random.usize(0..model.open.len().max(1))) else {
                    continue;
                };
                let (id, name) = (id.clone(), name.clone());
                let due_ms = world.wall_ms() + random.i64(-1_000..100_000);
                let items = [None, Some("k0"), Some("k1"), Some("k2")].map(|key: Option<&str>| {
                    let key = key.map(str::to_owned);
                    let item = if random.bool() {
                        Item::Reschedule(Reschedule { id: id.clone(), key, due_ms })
                    } else {
                        Item::Cancel(Cancel { id: id.clone(), key, keep_days: 0 })
                    };
                    (item, name.clone(), id.clone(), due_ms)
                });
                model.give(&world, items.into());
            }
        }
    }
    model.give(&world, set_all());
    for tenant in ["t0", "t1", "t2"] {
        model.give(&world, vec![(remove_tenant(tenant), String::new(), String::new(), 0)]);
    }
    for key in 0..3 {
        let item = Item::pause(Some(format!("k{key}")), false);
        model.give(&world, vec![(item, String::new(), String::new(), 0)]);
    }
    let mut rounds = 0;
    while world.engine.open_count() > 0 {
        rounds += 1;
        assert!(rounds < 400_000, "stuck with {}: {:?}", world.engine.open_count(), model.log);
        model.take(&world, &mut random);
        model.answer(&world, &mut random, true);
        world.write();
        model.committed();
        let now_us = world.engine.clock().now_us();
        let next_us = world.engine.timer.next_wake_us().unwrap_or(u64::MAX);
        world.advance_us(next_us.saturating_sub(now_us).clamp(1_000, 1_000_000));
    }
    let letters = world.engine.with_store(|store| store.unwritten_letters()).unwrap().0;
    let dead: BTreeSet<String> = letters
        .iter()
        .map(|it| String::from_utf8(it.record.clone()).unwrap().split('"').nth(3).unwrap().to_owned())
        .collect();
    assert!(letters.len() >= 1_000 || dead.len() == letters.len(), "a letter is there twice");
    if letters.len() < 1_000 {
        for (id, (name, _)) in &model.open {
            assert!(
                model.over.contains(id) || dead.contains(id) || model.may.contains(id),
                "{id} to {name} is lost: {:?}",
                model.log
            );
            assert!(!(model.over.contains(id) && dead.contains(id)), "{id} arrived, and is a dead letter");
        }
    }
    assert!(world.engine.with_store(|store| store.removed_destination().is_none()));
    assert_whole(&world.store(), Digest::number);
    chain.check_if_used(&world.store());
}

trait ToVecOf<T> {
    fn to_vec_of(self) -> Vec<T>;
}

impl<T, const N: usize> ToVecOf<T> for [T; N] {
    fn to_vec_of(self) -> Vec<T> {
        self.into_iter().collect()
    }
}

#[test]
fn four_destinations_and_three_tenants_at_random_lose_and_double_nothing__d5_d23_d24() {
    play_seeds(60, play);
}
