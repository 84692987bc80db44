//! Messages with strikes beside all else that can happen, and tries while the destination is down (D6).

use std::time::Duration;

use crate::due::pace::Rate;
use crate::due::retry::Retry;
use crate::group::items::{Failing, Item};
use crate::group::writer::Sends;
use crate::message::incoming::Incoming;
use crate::message::{Body, Extras, Message, Reschedule};
use crate::run::settings::Settings;
use crate::scenarios::neighbours::limits;
use crate::scenarios::testing::{ByHand, START_MS, arrives, cancel, play_seeds, put};
use crate::sinks::{Delivery, Verdict, Verdicts};

fn unreachable() -> Verdict {
    Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None }
}

fn busy(retry_after_ms: u64) -> Verdict {
    Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: Some(retry_after_ms) }
}

/// Ends the process while all that can go out is being sent, `times` times.
fn struck(world: ByHand, times: usize) -> ByHand {
    (0..times).fold(world, |world, _| {
        while world.next_send().is_some() {}
        world.again()
    })
}

fn strikes(world: &ByHand, seq: i64) -> u32 {
    world.engine.with_store(|store| store.attempts(seq)).unwrap().map_or(0, |it| it.strikes)
}

fn later(key: Option<&str>, id: &str, due_ms: i64) -> Item {
    Item::Reschedule(Reschedule { id: id.to_owned(), key: key.map(str::to_owned), due_ms })
}

/// A backlog of others takes each token before the message can be noted.
#[test]
fn with_a_rate_a_message_with_two_strikes_is_not_the_last_of_all__d6_d18() {
    let rate = Some(Rate { messages: 10, per_us: 1_000_000 });
    let world = ByHand::start(Settings { rate, ..Settings::default() });
    world.give(vec![put(None, "struck", START_MS - 1_000)]);
    let world = struck(world, 2);
    assert_eq!(strikes(&world, 1), 2);
    world.engine.set_places(limits(8, 8));
    world.give((0..600).map(|id| put(None, &id.to_string(), START_MS)).collect());
    let mut sent: Vec<String> = Vec::new();
    for _ in 0..30_000 {
        world.write();
        while let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, false) {
            sent.push(deliveries[0].body.id().to_owned());
            world.engine.settle(flight, Verdicts::Delivered, None);
            world.write();
        }
        world.advance_ms(1);
    }
    let place = sent.iter().position(|id| id == "struck");
    assert!(place.is_some_and(|place| place < 20), "of {} sent in 30 s it is {place:?}", sent.len());
}

/// As the senders of a closing engine do it: how many messages are sent.
fn sent_by_a_close(world: &ByHand) -> usize {
    let mut sent = 0;
    for _ in 0..100_000 {
        if let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, false) {
            sent += deliveries.len();
            world.engine.settle(flight, Verdicts::Delivered, None);
        } else if world.engine.lock_dispatcher().has_more_to_send(Duration::from_secs(1)) {
            world.write();
        } else {
            break;
        }
    }
    sent
}

/// It is due and waits only for the commit of its note.
#[test]
fn a_close_sends_messages_with_two_strikes_also_after_a_second__d6() {
    for uptime_ms in [0, 5_000] {
        let world = ByHand::start(Settings::default());
        world.give(vec![put(None, "a", START_MS)]);
        let world = struck(world, 2);
        assert_eq!(strikes(&world, 1), 2);
        world.give(vec![later(None, "a", world.wall_ms() + uptime_ms)]);
        world.advance_ms(uptime_ms as u64);
        world.write();
        assert_eq!(sent_by_a_close(&world), 1, "{uptime_ms} ms after the start");
    }
}

/// One with three strikes goes alone, and a thousand others are due.
#[test]
fn a_close_sends_all_that_is_due_though_a_message_goes_alone__d6() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(None, "a", START_MS)]);
    let world = struck(world, 3);
    assert_eq!(strikes(&world, 1), 3);
    world.give(vec![later(None, "a", world.wall_ms() + 5_000)]);
    world.give((0..1_000).map(|id| put(None, &id.to_string(), world.wall_ms() + 5_000)).collect());
    world.advance_ms(5_000);
    world.write();
    assert_eq!(sent_by_a_close(&world), 1_001);
}

/// The first message moves the reading on, so the second comes into memory when it is accepted.
#[test]
fn one_end_of_the_process_gives_one_strike__d6() {
    for is_near in [false, true] {
        let world = ByHand::start(Settings::default());
        if is_near {
            world.write();
        }
        world.give(vec![put(None, "a", START_MS)]);
        assert!(world.next_send().is_some());
        let world = world.again();
        assert_eq!(strikes(&world, 1), 1, "near: {is_near}");
    }
}

/// An outage of a minute, in which all but the dead ones are told to wait for an hour. Returns for how many seconds after it the
/// destination counts as down.
fn down_for_s(world: &ByHand, is_dead: impl Fn(&Delivery) -> bool) -> u64 {
    world.pass_ms(60_000, |it| if is_dead(it) { unreachable() } else { busy(3_600_000) });
    assert!(world.engine.down().is_some());
    let mut after_s = 0;
    while world.engine.down().is_some() && after_s < 3_600 {
        world.pass_ms(10_000, |it| if is_dead(it) { unreachable() } else { Verdict::Delivered });
        after_s += 10;
    }
    after_s
}

/// A dead message without a key fails each second and stays in memory. Twenty others without keys were told to wait for an hour.
#[test]
fn in_an_outage_messages_without_a_key_that_left_memory_are_tried_beside_one_that_always_fails__d6() {
    for dead in [0, 1] {
        let world = ByHand::start(Settings::default());
        world.engine.set_places(limits(4, 8));
        world.give((0..dead).map(|id| put(None, &format!("dead{id}"), START_MS)).collect());
        world.give((0..20).map(|id| put(None, &format!("h{id}"), START_MS)).collect());
        let is_dead = |it: &Delivery| it.body.id().starts_with("dead");
        let after_s = down_for_s(&world, is_dead);
        assert!(after_s <= 60, "{dead} dead: the destination is back, and counts as down for {after_s} s more");
    }
}

/// 64 messages of other keys wait for a shorter time in the store.
#[test]
fn in_an_outage_messages_without_a_key_are_tried_though_many_keys_wait__d6() {
    for dead in [10, 80] {
        let world = ByHand::start(Settings {
            retry: Retry { waits_ms: vec![600_000], ..Retry::default() },
            ..Settings::default()
        });
        world.engine.set_places(limits(4, 8));
        world.give((0..dead).map(|id| put(Some(&format!("dead{id}")), &id.to_string(), START_MS)).collect());
        let is_dead = |it: &Delivery| it.key().is_some_and(|key| key.starts_with("dead"));
        world.deliver(|_| unreachable());
        world.give(vec![put(None, "ok", START_MS)]);
        world.deliver(arrives);
        world.advance_ms(100);
        world.give((0..20).map(|id| put(None, &format!("h{id}"), START_MS)).collect());
        let after_s = down_for_s(&world, is_dead);
        assert!(after_s <= 120, "{dead} dead keys: the destination is back, and counts as down for {after_s} s more");
    }
}

/// The commit of the note takes 0.9 s, and the message ends the process 0.2 s after its send.
#[test]
fn a_message_is_alone_for_a_second_from_its_send_on__d6() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![put(None, "a", START_MS)]);
    world = struck(world, 3);
    let mut given = Vec::new();
    for _ in 0..4 {
        world.write();
        assert!(world.take().is_none());
        world.advance_ms(900);
        world.write();
        if world.take().is_none() {
            break;
        }
        world.advance_ms(200);
        assert!(world.take().is_none());
        world.write();
        world = world.again();
        given.push(strikes(&world, 1));
    }
    assert_eq!(given, [4, 5, 6], "strikes after each end of the process");
}

/// One of a key in doubt has no spare place: a call that never returns has it.
#[test]
fn a_message_that_goes_alone_does_not_wait_behind_one_that_has_no_place__d6() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("bad"), "a", START_MS)]);
    world.deliver(|_| Verdict::Refused("no".to_owned()));
    let mut world = world;
    while strikes(&world, 1) < 3 {
        world.advance_ms(2_000);
        assert!(world.next_send().is_some());
        world = world.again();
    }
    world.give(vec![later(Some("bad"), "a", world.wall_ms() + 600_000), put(None, "b", START_MS)]);
    while strikes(&world, 3) < 3 {
        assert!(world.next_send().is_some());
        world = world.again();
    }
    assert_eq!((strikes(&world, 2), strikes(&world, 3)), (3, 3));
    world.engine.set_places(limits(1, 1));
    let now_ms = world.wall_ms();
    world.give(vec![later(Some("bad"), "a", now_ms + 1_000), later(None, "b", now_ms + 1_300)]);
    world.give(vec![put(None, "hangs", now_ms + 950), put(None, "c", now_ms + 1_400)]);
    let mut sent = Vec::new();
    for _ in 0..6_000 {
        world.advance_ms(10);
        while let Some((flight, deliveries)) = world.next_send() {
            assert_eq!(deliveries.len(), 1);
            sent.push(deliveries[0].body.id().to_owned());
            if deliveries[0].body.id() != "hangs" {
                world.engine.settle(flight, Verdicts::Delivered, None);
            }
        }
    }
    assert_eq!(sent, ["hangs", "b", "c"], "an ordinary place is free for a minute");
}

/// 64 of 200 customers hang, and two crashes hit all of them.
#[test]
fn hanging_members_of_a_group_do_not_hold_up_others_with_two_strikes__d6() {
    for crashes in [0, 1, 2] {
        let world = ByHand::start(Settings::default());
        world.give((0..200).map(|id| put(Some(&format!("k{id:03}")), &format!("{id:03}"), START_MS)).collect());
        let world = struck(world, crashes);
        world.engine.set_places(limits(1_024, 1_024));
        let (mut last_ms, mut delivered, mut was_down) = (0, 0, false);
        for at_ms in (0..3_600_000).step_by(100) {
            world.write();
            while let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, true) {
                if deliveries[0].body.id() >= "064" {
                    (last_ms, delivered) = (at_ms, delivered + 1);
                    world.engine.settle(flight, Verdicts::Delivered, None);
                }
                world.write();
            }
            was_down |= world.engine.down().is_some();
            world.advance_ms(100);
            if delivered == 136 {
                break;
            }
        }
        let told = format!("{crashes} crashes: {delivered} of 136, the last after {last_ms} ms; down: {was_down}");
        assert!(delivered == 136 && last_ms <= 10_000, "{told}");
    }
}

/// 32 messages have three strikes.
#[test]
fn while_it_is_down_messages_that_go_alone_are_four_tries_a_second_too__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..32).map(|id| put(None, &format!("s{id:02}"), START_MS)).collect());
    let world = struck(world, 3);
    assert_eq!((1..=32).filter(|seq| strikes(&world, *seq) == 3).count(), 32);
    let due_ms = world.wall_ms() + 20_000;
    world.give((0..32).map(|id| later(None, &format!("s{id:02}"), due_ms)).collect());
    world.give((0..10).map(|id| put(Some(&format!("k{id}")), &id.to_string(), START_MS)).collect());
    world.pass_ms(19_900, |_| unreachable());
    assert!(world.engine.down().is_some());
    let tries = world.pass_ms(1_100, |_| unreachable());
    assert!(tries.len() <= 8, "{} tries in 1.1 s of an outage", tries.len());
}

/// The message was refused once. Then the wall clock is set back by an hour, and each further send ends the process.
#[test]
fn a_message_that_ends_the_process_gets_its_strikes_though_the_wall_clock_was_set_back__d6() {
    let mut world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS - 10 * 3_600_000)]);
    world.deliver(|_| Verdict::Refused("no".to_owned()));
    world.step_wall_clock_ms(-3_600_000);
    let mut ends = 0;
    for _ in 0..300 {
        world.engine.follow_clock();
        world.advance_ms(1_000);
        if world.next_send().is_none() {
            continue;
        }
        world.advance_ms(100);
        world = world.again();
        ends += 1;
        if strikes(&world, 1) > 0 {
            break;
        }
    }
    assert!(ends <= 2, "the process ended {ends} times, and the message has {} strikes", strikes(&world, 1));
}

/// The wall clock is set forward by an hour while two messages wait for five minutes.
#[test]
fn what_waits_for_its_next_attempt_gets_no_strike_though_the_wall_clock_was_set_forward__d6() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS), put(None, "b", START_MS)]);
    world.deliver(|_| busy(300_000));
    world.step_wall_clock_ms(3_600_000);
    world.engine.follow_clock();
    world.advance_ms(1_000);
    world.write();
    let world = world.again();
    assert_eq!((strikes(&world, 1), strikes(&world, 2)), (0, 0));
}

/// The message was refused. Its key is paused, so it went back to the store.
#[test]
fn a_message_of_a_paused_key_gets_no_strike__d6_d16() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    world.deliver(|_| Verdict::Refused("no".to_owned()));
    world.give(vec![Item::pause(Some("k".to_owned()), true)]);
    assert!(world.pass_ms(5_000, arrives).is_empty());
    world.pass_ms(3_600_000, arrives);
    let world = world.again();
    assert_eq!(strikes(&world, 1), 0, "it was not on its way for an hour");
}

/// 4,000 overdue messages have two strikes, and all calls take a second. Another message is told to wait for 20 s each time.
#[test]
fn messages_with_strikes_do_not_keep_those_that_wait_in_the_store__d6() {
    for crashes in [0, 1, 2] {
        let world = ByHand::start(Settings::default());
        world.give(vec![put(None, "x", START_MS)]);
        world.deliver(|_| busy(20_000));
        world.give((0..4_000).map(|id| put(None, &format!("{id:04}"), START_MS)).collect());
        let world = (0..crashes).fold(world, |world, _| {
            assert!(world.next_send().is_some());
            world.again()
        });
        world.engine.set_places(limits(8, 64));
        let (mut attempts, mut flights) = (Vec::new(), Vec::<(u64, u64, bool)>::new());
        for now_ms in (0..120_000_u64).step_by(50) {
            world.write();
            while let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, false) {
                let is_x = deliveries[0].body.id() == "x";
                if is_x {
                    attempts.push(now_ms);
                }
                flights.push((now_ms + if is_x { 10 } else { 1_000 }, flight, is_x));
                world.write();
            }
            world.advance_ms(50);
            flights.retain(|(at_ms, flight, is_x)| {
                if *at_ms <= now_ms + 50 {
                    let verdict = if *is_x { busy(20_000) } else { Verdict::Delivered };
                    world.engine.settle(*flight, Verdicts::Each(vec![verdict]), None);
                    return false;
                }
                true
            });
        }
        assert!(attempts.len() >= 5, "{crashes} crashes: tried at {attempts:?} ms");
    }
}

/// Twenty messages with three strikes hang, and a healthy one is due.
#[test]
fn between_two_messages_that_are_alone_the_others_go_on__d6() {
    let world = ByHand::start(Settings::default());
    world.give((0..20).map(|id| put(Some(&format!("bad{id}")), &format!("bad{id}"), START_MS)).collect());
    let world = struck(world, 3);
    world.engine.set_places(limits(64, 64));
    world.give(vec![put(Some("h"), "h", world.wall_ms() + 1_500)]);
    let mut late_ms = None;
    for at_ms in (0..100_000).step_by(50) {
        world.write();
        while let Some((flight, deliveries)) = world.engine.take(1, usize::MAX, true) {
            if deliveries[0].body.id() == "h" {
                world.engine.settle(flight, Verdicts::Delivered, None);
                late_ms = late_ms.or(Some(at_ms));
            }
            world.write();
        }
        world.advance_ms(50);
    }
    assert!(
        late_ms.is_some_and(|ms| ms <= 5_500),
        "the healthy one was due after 1500 ms, and went out after {late_ms:?} ms"
    );
}

/// Anything happens at any moment. In the end all is resumed, and everything arrives.
#[test]
#[expect(clippy::too_many_lines, reason = "one list of all that can happen")]
fn whatever_happens_to_messages_with_strikes_each_gets_its_outcome__d6() {
    play_seeds(300, |seed, _| {
        let mut random = fastrand::Rng::with_seed(seed);
        let rate = (random.u8(0..4) == 0).then_some(Rate { messages: 20, per_us: 1_000_000 });
        let retry =
            Retry { max_attempts: 8, first_ms: 200, longest_ms: 20_000, waits_ms: Vec::new(), waits_end: false };
        let is_global = random.u8(0..6) == 0;
        let mut world = ByHand::start(Settings { is_global, retry, rate, ..Settings::default() });
        let places = (random.usize(1..5), random.usize(0..4));
        world.engine.set_places(limits(places.0, places.1));
        let most = if random.bool() { 1 } else { 20 };
        let key_of = |id: u64| (!id.is_multiple_of(3)).then(|| format!("k{}", id % 7));
        let (mut next, mut open): (u64, Vec<(u64, usize, Vec<String>)>) = (0, Vec::new());
        let (mut over, mut is_over) = (Vec::new(), std::collections::BTreeSet::new());
        let notes = |world: &ByHand, of: &str| -> Vec<(i64, u32, bool)> {
            let db = rusqlite::Connection::open(world.store()).unwrap();
            let text = format!("SELECT seq, strikes, noted FROM attempts WHERE strikes >= 2 AND {of}");
            let rows = db
                .prepare(&text)
                .unwrap()
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .unwrap()
                .collect::<Result<Vec<_>, _>>();
            rows.unwrap()
        };
        for _ in 0..400 {
            let id = if next == 0 { 0 } else { random.u64(0..next) };
            let key = key_of(id);
            match random.u8(0..100) {
                0..12 => {
                    for _ in 0..random.u8(1..8) {
                        let due_ms = world.wall_ms() + random.i64(-5_000..3_000);
                        let expires_ms = (random.u8(0..5) == 0).then(|| due_ms + random.i64(1..20_000));
                        let extras = Extras { expires_ms, ..Extras::default() };
                        let body =
                            Body::new(key_of(next).as_deref(), &next.to_string(), b"1", true).with_extras(extras);
                        drop(world.submit(vec![Item::Put(Incoming::of(Message { body, due_ms, delay_ms: None }))]));
                        next += 1;
                    }
                }
                12..16 => drop(world.submit(vec![cancel(key.as_deref(), &id.to_string())])),
                16..22 => {
                    let due_ms = world.wall_ms() + random.i64(-5_000..5_000);
                    drop(world.submit(vec![later(key.as_deref(), &id.to_string(), due_ms)]));
                }
                22..25 => drop(world.submit(vec![Item::pause(None, random.u8(0..3) == 0)])),
                25..29 if !is_global && key.is_some() => {
                    drop(world.submit(vec![Item::pause(key, random.u8(0..3) == 0)]));
                }
                29 => {
                    world.step_wall_clock_ms(random.i64(-4_000..4_000));
                    world.engine.follow_clock();
                }
                30 => {
                    let failing = match key {
                        Some(key) => Failing::Key(key),
                        None => Failing::Message(id.to_string()),
                    };
                    drop(world.submit(vec![Item::Again(failing)]));
                }
                31..33 => drop(world.submit(vec![Item::Requeue { id: id.to_string(), key }])),
                33..60 => {
                    if let Some((flight, deliveries)) = world.engine.take(most, usize::MAX, random.bool()) {
                        for it in &deliveries {
                            assert!(it.due_ms <= world.wall_ms(), "seed {seed}: early");
                            assert!(!is_over.contains(it.body.id()), "seed {seed}: {} again", it.body.id());
                            if it.attempt == 1 {
                                let without = notes(&world, &format!("seq = {} AND noted = 0", it.seq));
                                assert_eq!(without, [], "seed {seed}: sent without a note");
                            }
                            let key = it.key().map(str::to_owned).unwrap_or_default();
                            for (other, _, keys) in &open {
                                let is_out = world.engine.is_in_flight(*other);
                                assert!(
                                    !is_out
                                        || key.is_empty()
                                        || !keys.iter().any(|it| it.split('\n').next() == Some(&key)),
                                    "seed {seed}: {key} twice"
                                );
                            }
                        }
                        let keys =
                            deliveries.iter().map(|it| format!("{}\n{}", it.key().unwrap_or_default(), it.body.id()));
                        open.push((flight, deliveries.len(), keys.collect()));
                    }
                }
                60..75 if !open.is_empty() => {
                    let (flight, count, keys) = open.swap_remove(random.usize(0..open.len()));
                    let verdicts: Vec<Verdict> = (0..count)
                        .map(|_| match random.u8(0..12) {
                            0..5 => Verdict::Delivered,
                            5 => Verdict::NotTried,
                            6 => Verdict::Refused("no".to_owned()),
                            7 => busy(random.u64(100..30_000)),
                            8 => Verdict::Failed { reason: "500".to_owned(), retry_after_ms: None },
                            _ => unreachable(),
                        })
                        .collect();
                    if world.engine.is_in_flight(flight) {
                        let arrived = verdicts.iter().zip(keys).filter(|(it, _)| **it == Verdict::Delivered);
                        over.extend(arrived.map(|(_, key)| key.split('\n').nth(1).unwrap().to_owned()));
                        world.engine.settle(flight, Verdicts::Each(verdicts), None);
                    } else {
                        world.engine.lock_dispatcher().free_place(flight);
                    }
                }
                75..85 => world.advance_ms(random.u64(1..1_500)),
                85..95 => drop(world.engine.write(&|| Ok(())).unwrap()),
                95..98 => {
                    world = world.again();
                    world.engine.set_places(limits(places.0, places.1));
                    open.clear();
                    over.clear();
                }
                99 => {
                    world.give(vec![Item::pause(None, true)]);
                    for (flight, ..) in open.drain(..) {
                        if world.engine.is_in_flight(flight) {
                            world.engine.settle(flight, Verdicts::Each(Vec::new()), None);
                        } else {
                            world.engine.lock_dispatcher().free_place(flight);
                        }
                    }
                    world.write();
                    is_over.extend(over.drain(..));
                    assert_eq!(notes(&world, "noted = 1"), [], "seed {seed}: noted in a pause");
                    world.give(vec![Item::pause(None, false)]);
                }
                98 => {
                    world.engine.close(Sends::SomeHang).unwrap();
                    world = world.again();
                    world.engine.set_places(limits(places.0, places.1));
                    open.clear();
                    over.clear();
                }
                _ => {}
            }
        }
        for (flight, ..) in open {
            if world.engine.is_in_flight(flight) {
                world.engine.settle(flight, Verdicts::Delivered, None);
            } else {
                world.engine.lock_dispatcher().free_place(flight);
            }
        }
        world.give(vec![Item::pause(None, false)]);
        if !is_global {
            world.give((0..7).map(|n| Item::pause(Some(format!("k{n}")), false)).collect());
        }
        world.pass_ms(400_000, arrives);
        assert_eq!(world.engine.down(), None, "seed {seed}");
        assert_eq!(world.engine.open_count(), 0, "seed {seed}: {:?}", *world.engine.lock_dispatcher());
        assert_eq!(world.engine.with_store(|store| store.tried_count()), 0);
    });
}
