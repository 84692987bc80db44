//! A message that ends the process is not tried for ever, and costs no other message an attempt (D6).

mod edges;
mod pace;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::neighbours::{S_US, limits};
use super::tenant_limits::set_tenant;
use super::tenants::of;
use super::testing::{ByHand, START_MS, arrives, ids, put};
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::message::Reschedule;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};
use crate::store::CRASHED;

/// The first attempt that counts is the last one: a crash must not count.
fn settings() -> Settings {
    Settings { retry: Retry { max_attempts: 1, ..Retry::default() }, ..Settings::default() }
}

/// What a send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// It is accepted after this time.
    Arrive(u64),
    /// It has no answer for 30 s.
    Hang,
    /// It ends the process after this time.
    End(u64),
}

#[derive(Debug, Default)]
struct Ends {
    /// Ends of the process by a message.
    by_message: usize,
    arrived: BTreeSet<String>,
    /// The ids of the dead letters, with their reasons.
    dead: BTreeMap<String, String>,
}

/// Runs until so many have their outcome. A new process starts a second after the end of the last. `kills`: after how many
/// microseconds each process is ended from outside, as long as there are some.
fn play(
    mut world: ByHand,
    places: (usize, usize),
    mut kills: Vec<u64>,
    expected: usize,
    does: &dyn Fn(&str) -> Does,
) -> Ends {
    let mut ends = Ends::default();
    let mut now_us = 0;
    loop {
        world.engine.set_places(limits(places.0, places.1));
        let kill_us = kills.pop().map_or(u64::MAX, |after_us| now_us + after_us);
        let mut flights: BTreeMap<u64, Vec<(String, Does)>> = BTreeMap::new();
        let mut heap = BinaryHeap::new();
        let mut is_ended = false;
        while !is_ended {
            world.write();
            while let Some((number, deliveries)) = world.engine.take(1, usize::MAX, false) {
                let one = deliveries[0].body.id().to_owned();
                let what = does(&one);
                assert!(deliveries[0].attempt == 1 || what == Does::Hang, "{one}: a crash counts no attempt");
                let takes_us = match what {
                    Does::Arrive(us) | Does::End(us) => us,
                    Does::Hang => 30 * S_US,
                };
                heap.push(Reverse((now_us + takes_us, number)));
                flights.insert(number, vec![(one, what)]);
                world.write();
            }
            while let Some((letters, through)) = world.engine.queue.take_letters() {
                ends.dead.extend(letters.iter().map(|it| (id_of(&it.record), it.reason.clone())));
                world.engine.queue.letters_taken(through);
                world.write();
            }
            if ends.arrived.len() + ends.dead.len() == expected {
                return ends;
            }
            assert!(now_us < 3_600 * S_US, "it takes long: {ends:?}");
            let next_us = heap.peek().map_or(u64::MAX, |Reverse((at, _))| *at).min(kill_us);
            let wake_us = world
                .engine
                .timer
                .next_wake_us()
                .map_or(u64::MAX, |us| now_us + us.saturating_sub(world.engine.clock().now_us()));
            let next_us = next_us.min(wake_us).min(now_us + S_US / 4).max(now_us + 1);
            world.advance_us(next_us - now_us);
            now_us = next_us;
            is_ended = now_us >= kill_us;
            while let Some(Reverse((_, number))) = heap.peek().copied().filter(|it| it.0.0 <= now_us && !is_ended) {
                heap.pop();
                let (one, what) = flights.remove(&number).unwrap().remove(0);
                match what {
                    Does::End(_) => {
                        ends.by_message += 1;
                        is_ended = true;
                    }
                    Does::Hang => {
                        let reason = "no answer".to_owned();
                        let verdict = Verdict::Unanswered { reason, retry_after_ms: Some(3_500_000) };
                        world.engine.settle(number, Verdicts::Each(vec![verdict]), None);
                    }
                    Does::Arrive(_) => {
                        world.engine.settle(number, Verdicts::Delivered, None);
                        ends.arrived.insert(one);
                    }
                }
            }
        }
        world.advance_ms(1_000);
        now_us += S_US;
        world = world.again();
    }
}

fn id_of(record: &[u8]) -> String {
    let text = std::str::from_utf8(record).unwrap();
    text.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

/// One tenant has a limit, one a rate, and one is beside them with many others.
#[test]
fn a_message_of_a_tenant_that_ends_the_process_is_given_up_and_no_other_is__d6_d24() {
    for after_us in [0, 10_000] {
        let world = ByHand::start(settings());
        world.give(vec![set_tenant("a", r#"{"concurrency":2}"#), set_tenant("b", r#"{"rate":"50/s","weight":9}"#)]);
        let name = |id: usize| ["a", "b", "c", "d"][id % 4];
        let mut items: Vec<_> =
            (0..400).map(|id| of(name(id), None, (id % 3 == 0).then_some("k"), &id.to_string(), START_MS)).collect();
        items.insert(123, of("a", None, None, "poison", START_MS));
        items.push(of("b", None, None, "hangs", START_MS));
        world.give(items);
        let ends = play(world, (8, 8), Vec::new(), 401, &|id| match id {
            "poison" => Does::End(after_us),
            "hangs" => Does::Hang,
            _ => Does::Arrive(5_000),
        });
        assert_eq!(ends.dead.keys().collect::<Vec<_>>(), ["poison"], "{ends:?}");
        assert_eq!((ends.arrived.len(), &ends.dead["poison"][..]), (400, &*format!("gave up: {CRASHED}")));
        assert!(ends.by_message <= 6, "{ends:?}");
    }
}

/// A message that ends the process is among 5,000 others, with some that hang beside it.
#[test]
fn a_message_that_ends_the_process_is_given_up_after_six_ends_and_no_other_is__d6() {
    for (places, after_us) in [((1, 0), 0), ((8, 8), 0), ((64, 64), 10_000), ((64, 64), 500_000)] {
        for has_key in [false, true] {
            let world = ByHand::start(settings());
            let key = |id: usize| has_key.then(|| format!("k{}", id % 50));
            let mut items: Vec<_> = (0..5_000).map(|id| put(key(id).as_deref(), &id.to_string(), START_MS)).collect();
            items.insert(1_234, put(Some("bad"), "poison", START_MS));
            if places.1 > 0 {
                items.extend((0..5).map(|id| put(Some(&format!("hangs{id}")), &format!("hangs{id}"), START_MS)));
            }
            world.give(items);
            let ends = play(world, places, Vec::new(), 5_001, &|id| match id {
                "poison" => Does::End(after_us),
                id if id.starts_with("hangs") => Does::Hang,
                _ => Does::Arrive(if places.0 == 1 { 100 } else { 5_000 }),
            });
            assert!(ends.by_message <= 6, "{places:?}: {} ends", ends.by_message);
            assert_eq!(ends.dead.keys().collect::<Vec<_>>(), ["poison"], "{places:?}");
            assert_eq!(ends.dead["poison"], format!("gave up: {CRASHED}"));
            assert_eq!(ends.arrived.len(), 5_000, "{places:?}");
        }
    }
}

#[test]
fn kills_from_outside_during_long_sends_give_up_nothing__d6() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = ByHand::start(settings());
        world.give((0..300).map(|id| put(None, &id.to_string(), START_MS)).collect());
        let kills = (0..20).map(|_| random.u64(100_000..20 * S_US)).collect();
        let ends = play(world, (8, 0), kills, 300, &|_| Does::Arrive(3 * S_US));
        assert_eq!((ends.arrived.len(), ends.dead.len()), (300, 0), "seed {seed}: {:?}", ends.dead);
    }
}

/// Ends the process while this message is being sent, `times` times.
fn struck(world: ByHand, times: usize) -> ByHand {
    (0..times).fold(world, |world, _| {
        assert!(world.next_send().is_some());
        world.again()
    })
}

fn strikes(world: &ByHand, seq: i64) -> u32 {
    world.engine.with_store(|store| store.attempts(seq)).unwrap().map_or(0, |it| it.strikes)
}

#[test]
fn each_end_gives_a_strike_from_two_on_the_message_is_noted_and_from_three_on_alone__d6() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let world = struck(world, 1);
    assert_eq!(strikes(&world, 1), 1);
    let world = struck(world, 1);
    assert_eq!(strikes(&world, 1), 2);
    world.give(vec![put(None, "b", START_MS), put(None, "c", START_MS)]);
    assert_eq!(ids(&world.take().unwrap().1), ["b", "c"], "the others go on while the first is noted");
    world.write();
    assert_eq!(ids(&world.take().unwrap().1), ["a"]);
    let world = world.again();
    assert_eq!((strikes(&world, 1), strikes(&world, 2), strikes(&world, 3)), (3, 1, 1));
    world.write();
    let sent = std::iter::from_fn(|| world.next_send()).map(|(_, sent)| ids(&sent).join(",")).collect::<Vec<_>>();
    assert_eq!(sent, ["b,c"], "the third waits for the young ones");
    world.advance_ms(1_000);
    assert_eq!(ids(&world.next_send().unwrap().1), ["a"]);
    world.give(vec![put(None, "d", START_MS)]);
    assert!(world.next_send().is_none(), "it is alone");
    world.advance_ms(1_000);
    assert_eq!(ids(&world.next_send().unwrap().1), ["d"], "it has not ended the process in its time");
    world.write();
    let world = world.again();
    assert_eq!(strikes(&world, 1), 3, "the note was taken back");
}

#[test]
fn any_answer_clears_the_strikes_and_a_crash_counts_no_attempt__d6() {
    let unanswered = Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: Some(1_000) };
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let world = struck(world, 2);
    let (number, sent) = world.next_send().unwrap();
    assert_eq!((sent[0].attempt, sent[0].redelivered), (1, true));
    world.engine.settle(number, Verdicts::Each(vec![unanswered]), None);
    world.write();
    assert_eq!(strikes(&world, 1), 0);
    let world = world.again();
    assert_eq!(strikes(&world, 1), 0, "it waits for its next attempt");
    world.advance_ms(1_000);
    let world = struck(world, 1);
    assert_eq!(strikes(&world, 1), 1, "its next attempt may have begun");
    world.advance_ms(1_000);
    assert_eq!(ids(&world.sent()), ["a"]);
}

#[test]
fn what_waits_for_its_next_attempt_gets_no_strike__d6() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let refused = || Verdict::Refused("no".to_owned());
    world.deliver(|_| refused());
    let world = world.again();
    assert_eq!(strikes(&world, 1), 0);
}

#[test]
fn an_end_after_a_stop_was_asked_gives_no_strike__d6() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    assert!(world.next_send().is_some());
    world.engine.queue.ask_to_stop();
    world.write();
    let world = world.again();
    assert_eq!(strikes(&world, 1), 0);
    let world = struck(world, 1);
    assert_eq!(strikes(&world, 1), 1, "the next process was not asked");
}

#[test]
fn a_close_that_leaves_sends_hanging_gives_no_strike__d6() {
    for sends in [Sends::SomeHang, Sends::Unknown] {
        let mut world = ByHand::start(settings());
        world.give(vec![put(Some("k"), "a", START_MS)]);
        for _ in 0..8 {
            assert!(world.next_send().is_some());
            world.engine.close(sends).unwrap();
            world = world.again();
            assert_eq!(strikes(&world, 1), 0, "{sends:?}");
        }
        world = struck(world, 2);
        assert!(world.next_send().is_some());
        world.engine.close(sends).unwrap();
        assert_eq!(strikes(&world.again(), 1), 2, "{sends:?}: the note is taken back");
    }
}

/// A pause may last for days.
#[test]
fn nothing_is_noted_in_a_pause__d6_d16() {
    let pause = |is_paused| vec![Item::pause(None, is_paused)];
    let world = ByHand::start(settings());
    world.give(vec![put(None, "a", START_MS)]);
    let world = struck(world, 2);
    world.write();
    assert!(world.take().is_none());
    world.write(); // it is noted
    world.give(pause(true));
    world.write();
    let world = world.again();
    assert_eq!(strikes(&world, 1), 2);
    assert!(world.next_send().is_none());
    let world = world.again();
    assert_eq!(strikes(&world, 1), 2);
    world.give(pause(false));
    assert_eq!(ids(&world.deliver(arrives)), ["a"]);
}

#[test]
fn a_message_that_is_moved_keeps_its_strikes__d6_d16() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let world = struck(world, 2);
    let later = Reschedule { id: "a".to_owned(), key: Some("k".to_owned()), due_ms: START_MS + 1_000 };
    assert_eq!(world.give(vec![Item::Reschedule(later)]), [Answer::Rescheduled]);
    assert_eq!(strikes(&world, 2), 2);
    world.advance_ms(1_000);
    assert!(world.take().is_none(), "it is noted first");
    let world = struck(world, 1);
    assert_eq!(strikes(&world, 2), 3);
}

#[test]
fn a_requeued_message_keeps_two_strikes__d6_d16() {
    let world = ByHand::start(settings());
    world.give(vec![put(Some("k"), "a", START_MS)]);
    let world = struck(world, 6);
    assert!(world.next_send().is_none());
    world.write();
    assert_eq!((world.engine.open_count(), world.engine.summary().undeliverable), (0, 1));
    let requeue = Item::Requeue { key: Some("k".to_owned()), id: "a".to_owned() };
    assert_eq!(world.give(vec![requeue]), [Answer::Requeued]);
    assert_eq!(strikes(&world, 2), 2);
    assert_eq!(ids(&world.deliver(arrives)), ["a"]);
}

/// The group is as large as the places and the tokens, and 32 at most.
#[test]
fn a_crash_gives_a_third_strike_to_few__d6() {
    for (places, most, expected) in [(4, 1, 4), (40, 1, 32), (4, 1_000, 32)] {
        let mut world = ByHand::start(settings());
        world.give((0..1_000).map(|id| put(None, &format!("{id:03}"), START_MS)).collect());
        for _ in 0..2 {
            assert!(world.next_send().is_some());
            world = world.again();
        }
        world.engine.set_places(limits(places, 0));
        for _ in 0..20 {
            world.write();
            while world.engine.take(most, usize::MAX, false).is_some() {
                world.write();
            }
        }
        let world = world.again();
        let third = (1..=1_000).filter(|seq| strikes(&world, *seq) == 3).count();
        assert_eq!(third, expected, "{places} places");
    }
}
