//! The engine by hand: at most two groups are uncommitted, and when an obstacle ends, the messages behind it wake up
//! (rules D4, D5, D7, D8).

mod unwritable;

use crate::base::error::DeliveryError;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::group::items::Answer;
use crate::run::settings::Settings;
use crate::scenarios::testing::{ByHand, START_MS, answered, cancel, letter, put};
use crate::sinks::{Verdict, Verdicts};

fn due(key: Option<&str>, id: &str, after_ms: i64) -> crate::group::items::Item {
    put(key, id, START_MS + after_ms)
}

/// Many messages, one due each millisecond.
fn one_each_ms(count: i64) -> ByHand {
    let world = ByHand::start(Settings::default());
    world.give((0..count).map(|after_ms| due(None, &after_ms.to_string(), after_ms)).collect());
    world
}

#[test]
fn outcomes_that_are_not_committed_for_two_groups_time_hold_the_senders__d5() {
    let world = one_each_ms(300);
    assert_eq!(world.send(), ["0"]);
    world.advance_ms(60);
    assert_eq!(world.send().len(), 60, "the age of the first outcome counts");
    world.advance_ms(40);
    assert_eq!(world.send().len(), 40);
    world.advance_ms(1);
    assert!(world.send().is_empty());
    world.write();
    assert_eq!(world.send().len(), 1);
}

#[test]
fn while_a_group_is_being_committed_the_next_may_be_one_groups_time_old__d5() {
    let world = one_each_ms(3_000);
    assert_eq!(world.send(), ["0"]);
    let begun = world.engine.begin_group().unwrap();
    world.advance_ms(400); // the commit hangs
    assert_eq!(world.send().len(), 64, "nothing else is uncommitted");
    world.advance_ms(50);
    assert_eq!(world.send().len(), 64);
    world.advance_ms(1);
    assert!(world.send().is_empty());
    world.advance_ms(20_000);
    assert!(world.send().is_empty(), "however long it hangs");
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    world.engine.publish_group(&committed).unwrap();
    assert!(world.send().is_empty(), "the next group is older than two groups' time");
    world.write();
    assert_eq!(world.send().len(), 64);
}

#[test]
fn nothing_is_sent_or_taken_once_delivery_has_failed__d5() {
    let world = one_each_ms(2);
    assert_eq!(world.send(), ["0"]);
    world.engine.fail(&DeliveryError::Failed("no more".to_owned()));
    world.advance_ms(10);
    assert!(world.take().is_none());
    assert_eq!(world.engine.submit(Vec::new()).unwrap_err().to_string(), "no more");
}

#[test]
fn a_cancel_lets_the_next_one_go_that_was_due_while_the_first_was_committed__d7() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due(Some("k"), "b", 10)]);
    let receipt = world.submit(vec![due(Some("k"), "a", 5)]);
    let begun = world.engine.begin_group().unwrap();
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    world.advance_ms(10);
    assert!(world.take().is_none(), "a comes before b, and is not told to be on disk");
    world.engine.publish_group(&committed).unwrap();
    assert_eq!(answered(&receipt).unwrap().unwrap(), [Answer::Accepted]);
    assert_eq!(world.give(vec![cancel(Some("k"), "a")]), [Answer::Cancelled]);
    assert_eq!(world.send(), ["b"]);
}

#[test]
fn a_cancel_lets_the_next_one_go_that_was_due_while_another_was_being_sent__d7() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due(Some("k"), "flies", 10), due(Some("k"), "b", 10)]);
    world.advance_ms(10);
    let (flight, deliveries) = world.take().unwrap();
    assert_eq!(deliveries[0].body.id(), "flies");
    let _receipt = world.submit(vec![due(Some("k"), "a", 5)]);
    let begun = world.engine.begin_group().unwrap();
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    world.engine.settle(flight, Verdicts::Delivered, None); // now a is next, and not on the timer
    assert!(world.take().is_none());
    world.engine.publish_group(&committed).unwrap();
    assert_eq!(world.give(vec![cancel(Some("k"), "a")]), [Answer::Cancelled]);
    assert_eq!(world.send(), ["b"]);
}

#[test]
fn a_lane_goes_on_once_the_cancel_of_its_first_is_committed__d7() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due(Some("k"), "a", 5), due(Some("k"), "b", 5)]);
    let receipt = world.submit(vec![cancel(Some("k"), "a")]);
    let begun = world.engine.begin_group().unwrap();
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    world.advance_ms(5);
    assert!(world.take().is_none(), "a crash now may bring a back, and b would have gone before it");
    world.engine.publish_group(&committed).unwrap();
    assert_eq!(answered(&receipt).unwrap().unwrap(), [Answer::Cancelled]);
    assert_eq!(world.send(), ["b"]);
}

#[test]
fn nothing_is_over_while_something_is_being_accepted_or_cancelled__d11() {
    let world = ByHand::start(Settings::default());
    assert!(world.engine.is_empty(), "it was just started");
    let idle = world.engine.begin_group().unwrap();
    assert!(world.engine.is_empty(), "a group of nothing, for the upkeep");
    world.engine.commit_group(idle, &|| Ok(())).and_then(|it| world.engine.publish_group(&it)).unwrap();
    for item in [due(None, "a", 5_000), cancel(None, "a")] {
        let _receipt = world.submit(vec![item]);
        assert!(!world.engine.is_empty(), "it is queued");
        let begun = world.engine.begin_group().unwrap();
        assert!(!world.engine.is_empty(), "a group is begun");
        let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
        assert!(!world.engine.is_empty(), "it is on disk, and not answered");
        world.engine.publish_group(&committed).unwrap();
    }
    assert!(world.engine.is_empty());
}

/// Sends and writes while no time passes, and writes only if something wakes the writer. Returns the ids that went out.
fn run_now(world: &ByHand, verdict: impl Fn(&str) -> Verdict) -> Vec<String> {
    let mut delivered = Vec::new();
    loop {
        let is_woken = world.engine.queue.is_woken();
        if is_woken {
            world.engine.write(&|| Ok(())).unwrap();
        }
        let Some((flight, deliveries)) = world.take() else {
            if is_woken {
                continue;
            }
            return delivered;
        };
        let ids = || deliveries.iter().map(|it| it.body.id());
        let verdicts: Vec<Verdict> = ids().map(&verdict).collect();
        delivered
            .extend(ids().zip(&verdicts).filter(|(_, it)| **it == Verdict::Delivered).map(|(id, _)| id.to_owned()));
        world.engine.settle(flight, Verdicts::Each(verdicts), None);
    }
}

#[test]
fn what_found_no_room_goes_on_as_soon_as_there_is_some__d8() {
    for messages in [1, 4, 7] {
        let world = ByHand::start(Settings { bounds: Bounds { messages, ..Bounds::default() }, ..Settings::default() });
        let _receipt = world.submit((0..50).map(|id| due(None, &id.to_string(), -1)).collect());
        assert_eq!(run_now(&world, |_| Verdict::Delivered).len(), 50, "room for {messages}");
    }
}

#[test]
fn large_messages_do_not_wait_for_the_next_look_at_the_store__d8() {
    let world = ByHand::start(Settings { bounds: Bounds { bytes: 1_000, ..Bounds::default() }, ..Settings::default() });
    let _receipt = world.submit((0..30).map(|id| due(None, &id.to_string(), 10)).collect()); // about 200 bytes each
    assert!(run_now(&world, |_| Verdict::Delivered).is_empty());
    assert!(world.engine.in_memory().0 < 30);
    world.advance_ms(10);
    assert_eq!(run_now(&world, |_| Verdict::Delivered).len(), 30);
}

#[test]
fn a_key_whose_next_message_is_far_behind_others_in_the_store_is_not_kept_waiting__d4_d8() {
    let bounds = Bounds { lane_messages: 2, ..Bounds::default() };
    let retry = Retry {
        max_attempts: 1_000,
        first_ms: 3_600_000,
        longest_ms: 3_600_000,
        waits_ms: Vec::new(),
        waits_end: false,
    };
    let world = ByHand::start(Settings { retry, bounds, ..Settings::default() });
    let good = (0..3).map(|id| due(Some("good"), &format!("good {id}"), -90_000 + id));
    // More than one look at the store reads.
    let bad = (0..12_000).map(|id| due(Some("bad"), &format!("bad {id}"), -80_000 + id));
    let _receipt = world.submit(good.chain(bad).chain([due(Some("good"), "good 3", -1)]).collect());
    let refused = |id: &str| if id.starts_with("bad") { Verdict::Refused("no".to_owned()) } else { Verdict::Delivered };
    assert_eq!(run_now(&world, refused), ["good 0", "good 1", "good 2", "good 3"]);
}

#[test]
fn a_store_that_fails_after_the_commit_leaves_no_ticket_without_an_answer__d5() {
    let world = ByHand::start(Settings::default());
    let receipt = world.submit(vec![due(None, "a", 5), letter()]);
    let begun = world.engine.begin_group().unwrap();
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    let other = rusqlite::Connection::open(world.store()).unwrap();
    other.execute("DROP TABLE dead_letters", ()).unwrap();
    assert!(world.engine.publish_group(&committed).is_err());
    assert!(answered(&receipt).expect("it has one").is_ok(), "it is on disk");
}

#[test]
fn a_store_that_was_moved_or_replaced_takes_nothing_more__d9() {
    for is_replaced in [false, true] {
        let world = ByHand::start(Settings::default());
        world.give(vec![due(None, "a", 5)]);
        let elsewhere = world.store().with_extension("elsewhere");
        std::fs::rename(world.store(), &elsewhere).unwrap();
        if is_replaced {
            std::fs::write(world.store(), b"").unwrap();
        }
        world.advance_ms(1_000); // it looks once a second
        let receipt = world.submit(vec![due(None, "b", 5)]);
        let failed = world.engine.write(&|| Ok(())).unwrap_err().to_string();
        assert!(failed.contains("was moved, replaced or removed while it was open; put it back"), "{failed}");
        assert!(answered(&receipt).expect("it has failed").is_err());
        std::fs::rename(&elsewhere, world.store()).unwrap();
        let world = world.again();
        assert_eq!(world.engine.open_count(), 1);
    }
}

#[test]
fn a_sink_that_tries_none_of_what_it_is_given_is_not_asked_again_at_once__d6() {
    let world = one_each_ms(3);
    world.advance_ms(10);
    let mut sends = 0;
    for _ in 0..100 {
        while let Some((flight, deliveries)) = world.take() {
            sends += 1;
            world.engine.settle(flight, Verdicts::Each(vec![Verdict::NotTried; deliveries.len()]), None);
        }
        world.write();
        world.advance_ms(10);
    }
    assert!((3..=6).contains(&sends), "{sends} sends in a second: one for each message, and by its back-off");
    world.advance_ms(2_000);
    assert_eq!(world.send().len(), 3);
}

#[test]
fn what_a_sink_gives_as_a_reason_is_kept_neither_empty_nor_long__d6_d8() {
    for (reason, kept) in [("é".repeat(20_000), "é".repeat(1_000)), (" ".to_owned(), "no reason was given".to_owned())]
    {
        let world =
            ByHand::start(Settings { retry: Retry { max_attempts: 1, ..Retry::default() }, ..Settings::default() });
        world.give(vec![due(None, "a", 0), due(None, "b", 1)]);
        let (flight, _) = world.take().unwrap();
        world.engine.settle(flight, Verdicts::Each(vec![Verdict::Refused(reason.clone())]), None);
        world.write();
        let (letters, _) = world.engine.queue.take_letters().unwrap();
        assert_eq!(letters[0].reason, format!("gave up after 1 attempt: {kept}"));
        world.advance_ms(1);
        let (flight, _) = world.take().unwrap();
        let gone = Verdict::Unreachable { reason, retry_after_ms: None };
        world.engine.settle(flight, Verdicts::Each(vec![gone]), None);
        world.write();
        let attempts = world.engine.with_store(|store| store.attempts(2)).unwrap().unwrap();
        assert_eq!(attempts.error, Some(kept));
    }
}
