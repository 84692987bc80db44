//! The engine's measures of its own work, on clocks that the test moves (D15).

use super::testing::{ByHand, START_MS, put};
use crate::due::measures::{BOUNDS_US, Histogram};
use crate::due::retry::Retry;
use crate::group::items::Item;
use crate::message::Reschedule;
use crate::run::engine::Engine;
use crate::run::settings::Settings;
use crate::sinks::{Verdict, Verdicts};

const HOUR_MS: i64 = 3_600_000;

fn due(key: Option<&str>, id: &str, after_ms: i64) -> Item {
    put(key, id, START_MS + after_ms)
}

fn settle(world: &ByHand, verdicts: impl IntoIterator<Item = Verdict>) {
    let (number, _) = world.take().expect("it is due");
    world.engine.settle(number, Verdicts::Each(verdicts.into_iter().collect()), None);
}

fn unanswered(reason: &str) -> Verdict {
    Verdict::Unanswered { reason: reason.to_owned(), retry_after_ms: None }
}

/// `waiting, near, due, in_flight, retrying`
fn states(engine: &Engine) -> [u64; 5] {
    let it = engine.states();
    [engine.open_count() - it.messages(), it.near, it.due, it.in_flight, it.retrying]
}

/// Keys behind a send, a retry, a commit.
fn blocked(engine: &Engine) -> [u64; 3] {
    let it = engine.states();
    [it.behind_send, it.behind_retry, it.behind_commit]
}

fn only(histogram: &Histogram, duration_us: i64, count: u64) -> bool {
    let place = BOUNDS_US.iter().position(|bound| *bound >= duration_us).unwrap();
    histogram.counts[place] == count && histogram.counts.iter().sum::<u64>() == count
}

#[test]
fn each_open_message_is_in_one_state__d15() {
    let world = ByHand::start(Settings::default());
    world.give((0..5_000).map(|n| due(None, &format!("near {n}"), 8_000)).collect()); // more than one step
    world.give((0..3).map(|n| due(None, &format!("far {n}"), HOUR_MS)).collect());
    world.give(vec![due(Some("k"), "a", 1), due(Some("k"), "b", 1), due(Some("k"), "c", 9_000)]);
    assert_eq!(states(&world.engine), [3, 5_003, 0, 0, 0]);
    world.advance_ms(1);
    assert_eq!(states(&world.engine), [3, 5_001, 2, 0, 0]);
    let (number, _) = world.take().unwrap();
    assert_eq!((states(&world.engine), blocked(&world.engine)), ([3, 5_001, 1, 1, 0], [1, 0, 0]));
    world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
    assert_eq!((states(&world.engine), blocked(&world.engine)), ([3, 5_001, 1, 0, 1], [0, 1, 0]));
    world.write();
    world.advance_ms(1_000);
    assert_eq!(world.send(), ["a"]);
    world.write();
    assert_eq!((states(&world.engine), blocked(&world.engine)), ([3, 5_001, 1, 0, 0], [0, 0, 0]), "b can go out");
}

#[test]
fn a_key_whose_first_ended_otherwise_waits_for_that_to_be_on_disk__d15() {
    let retry = Retry { max_attempts: 1, ..Settings::default().retry };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    world.give(vec![due(Some("k"), "a", 0), due(Some("k"), "b", 0), due(Some("later"), "c", 9_000)]);
    settle(&world, [Verdict::Refused("never".to_owned())]);
    assert_eq!(blocked(&world.engine), [0, 0, 1]);
    world.write();
    assert_eq!(blocked(&world.engine), [0, 0, 0]);
    assert_eq!(world.send(), ["b"]);
}

#[test]
fn attempts_and_failures_are_counted_by_cause_and_sends_by_how_long_they_take__d15() {
    let world = ByHand::start(Settings::default());
    world.give((0..4).map(|n| due(None, &n.to_string(), 0)).collect());
    let (number, _) = world.take().unwrap();
    world.advance_ms(7);
    let verdicts = [Verdict::Delivered, Verdict::Refused("no".to_owned()), unanswered("status 503"), Verdict::NotTried];
    world.engine.settle(number, Verdicts::Each(verdicts.into()), None);
    let sends = world.engine.sends();
    assert_eq!((sends.attempts, sends.failures), (3, [0, 1, 0, 1]));
    assert!(only(&sends.durations, 7_000, 1));
    world.engine.settle(number, Verdicts::Delivered, None); // it was answered already
    assert_eq!(world.engine.sends().attempts, 3);
}

#[test]
fn a_send_that_is_cut_off_is_counted_as_one_and_its_messages_as_unanswered__d15() {
    let world = ByHand::start(Settings { sink_timeout_ms: 1_500, ..Settings::default() });
    world.give(vec![due(None, "a", 0), due(None, "b", 0)]);
    world.engine.take(64, 1 << 20, true).expect("both are due");
    world.advance_ms(1_500);
    assert!(world.take().is_none());
    let sends = world.engine.sends();
    assert_eq!((sends.cut_off, sends.attempts, sends.failures), (1, 2, [0, 2, 0, 0]));
    assert!(only(&sends.durations, 2_000_000, 1));
}

#[test]
fn it_is_known_since_when_the_destination_is_down_or_up__d15() {
    let retry = Retry { waits_ms: vec![1_000], ..Retry::default() };
    let world = ByHand::start(Settings { retry, ..Settings::default() });
    let since_ms = |world: &ByHand| world.engine.epoch_ms(world.engine.sends().changed_us.unwrap()) - START_MS;
    world.give((0..5).map(|id| due(None, &id.to_string(), 0)).collect());
    world.advance_ms(100);
    let gone = || Verdict::Unreachable { reason: "gone".to_owned(), retry_after_ms: None };
    settle(&world, [gone(), gone(), gone(), gone(), gone()]);
    assert_eq!((since_ms(&world), world.engine.down()), (0, None));
    world.write();
    world.advance_ms(1_000);
    settle(&world, [gone(), gone(), gone(), gone(), gone()]);
    assert_eq!((since_ms(&world), world.engine.down().as_deref()), (1_100, Some("gone")));
    world.write();
    world.advance_ms(1_000);
    assert_eq!(world.send().len(), 1, "one that has failed, as there is no other");
    assert_eq!((since_ms(&world), world.engine.down()), (2_100, None));
    assert_eq!(world.send().len(), 4);
}

#[test]
fn what_may_have_arrived_before_is_counted_when_it_arrives_again__d15() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due(None, "a", 0)]);
    assert!(world.take().is_some());
    let world = world.again();
    world.write();
    assert_eq!(world.send(), ["a"]);
    assert_eq!(world.engine.sends().redelivered, 1);
}

#[test]
fn a_commit_that_does_not_end_is_seen__d15() {
    let world = ByHand::start(Settings::default());
    let _receipt = world.submit(vec![due(None, "a", HOUR_MS)]);
    assert_eq!(world.engine.commit_running_us(), 0);
    world.advance_ms(3);
    let begun = world.engine.begin_group().unwrap();
    world.advance_ms(7);
    assert_eq!(world.engine.commit_running_us(), 7_000);
    let committed = world.engine.commit_group(begun, &|| Ok(())).unwrap();
    world.engine.publish_group(&committed).unwrap();
    assert_eq!(world.engine.commit_running_us(), 0);
}

#[test]
fn commits_conflicts_and_moves_are_counted_once_each__d15() {
    let world = ByHand::start(Settings::default());
    assert_eq!(world.engine.commits().last_ms, START_MS);
    world.advance_ms(5);
    world.write();
    let commits = world.engine.commits();
    assert_eq!((commits.last_ms, commits.durations.counts.iter().sum::<u64>()), (START_MS, 0), "there was nothing");
    world.give(vec![due(None, "a", HOUR_MS), due(None, "a", HOUR_MS + 1), due(None, "a", HOUR_MS)]);
    let move_it = Reschedule { id: "a".to_owned(), key: None, due_ms: START_MS + 5 };
    world.give(vec![Item::Reschedule(move_it)]);
    assert_eq!(world.send(), ["a"]);
    world.write();
    let (summary, commits) = (world.engine.summary(), world.engine.commits());
    assert_eq!((summary.accepted, summary.conflicts, summary.duplicates, summary.rescheduled), (1, 1, 1, 1));
    assert_eq!(commits.last_ms, START_MS + 5);
    assert!(only(&commits.durations, 0, 3) && only(&commits.lateness, 0, 1));
}
