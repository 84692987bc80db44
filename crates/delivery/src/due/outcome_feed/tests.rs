//! Which outcomes a reader gets, when it gets them, and which it loses (rules D5, D8).

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::group::writer::Sends;
use crate::run::settings::Settings;
use crate::scenarios::testing::{ByHand, START_MS, cancel, put, settings};
use crate::sinks::{Verdict, Verdicts};

fn ended(id: &str) -> Arc<Ended> {
    let done = Done {
        seq: 1,
        due_ms: 1,
        outcome: Outcome::Delivered,
        at_ms: 2,
        lateness_us: Some(1_000),
        attempts: 1,
        redelivered: false,
    };
    Arc::new(Ended::of(&done, &Body::new(None, id, b"1", true), None))
}

fn ids(read: &Read) -> Vec<String> {
    read.outcomes.iter().map(|it| it.id.to_string()).collect()
}

#[test]
fn an_outcome_is_told_after_its_commit_and_not_before__d5() {
    let world = ByHand::start(settings());
    let feed = world.engine.follow(Arc::new(OutcomeFeed::new(|| ())));
    world.give(vec![put(Some("k"), "a", START_MS), put(Some("k"), "b", START_MS)]);
    assert_eq!(world.send(), ["a"]);
    assert!(feed.read(10).outcomes.is_empty(), "it is not on disk");
    world.write();
    let read = feed.read(10);
    assert_eq!((ids(&read), read.missed, read.is_over), (vec!["a".to_owned()], 0, false));
    let one = &read.outcomes[0];
    assert_eq!(
        (one.key.as_deref(), one.due_ms, one.outcome, one.attempts),
        (Some("k"), START_MS, Outcome::Delivered, 1)
    );
    assert!(one.lateness_us.is_some() && one.reason.is_none());
}

#[test]
fn what_was_given_up_is_told_with_its_reason_and_a_cancel_is_not__d6_d7() {
    let mut settings = settings();
    settings.retry.max_attempts = 1;
    let world = ByHand::start(settings);
    let feed = world.engine.follow(Arc::new(OutcomeFeed::new(|| ())));
    world.give(vec![put(None, "bad", START_MS), put(None, "later", START_MS + 60_000), cancel(None, "later")]);
    let (number, _) = world.take().expect("it is due");
    world.engine.settle(number, Verdicts::Each(vec![Verdict::Refused("no".to_owned())]), None);
    world.write();
    let read = feed.read(10);
    assert_eq!(ids(&read), ["bad"]);
    assert_eq!((read.outcomes[0].outcome, read.outcomes[0].reason.as_deref()), (Outcome::Dead, Some("no")));
}

#[test]
fn a_slow_reader_loses_the_oldest_and_is_told_how_many_and_is_woken_once__d8() {
    let woken = Arc::new(AtomicUsize::new(0));
    let counted = woken.clone();
    let feed = Arc::new(OutcomeFeed::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let feeds = OutcomeFeeds::default();
    feeds.add(&feed);
    for number in 0..MOST + 3 {
        feeds.tell(&[ended(&number.to_string())]);
    }
    let read = feed.read(2);
    assert_eq!((read.missed, ids(&read), read.has_more), (3, vec!["3".to_owned(), "4".to_owned()], true));
    assert_eq!((feed.read(usize::MAX).outcomes.len(), feed.read(1).missed), (MOST - 2, 0));
    assert_eq!(woken.load(Ordering::Relaxed), 1);
}

#[test]
fn long_names_are_bounded_by_their_bytes__d8() {
    let feed = Arc::new(OutcomeFeed::new(|| ()));
    let feeds = OutcomeFeeds::default();
    feeds.add(&feed);
    for _ in 0..20 {
        feeds.tell(&[ended(&"x".repeat(1 << 20))]);
    }
    let read = feed.read(usize::MAX);
    assert_eq!((read.outcomes.len(), read.missed), (8, 12));
    feeds.tell(&[ended("y")]);
    assert_eq!(ids(&feed.read(9)), ["y"]);
}

#[test]
fn without_a_reader_nothing_is_kept_and_the_end_is_told_also_to_one_that_comes_late() {
    let world = ByHand::start(Settings::default());
    let feed = world.engine.follow(Arc::new(OutcomeFeed::new(|| ())));
    drop(feed);
    world.give(vec![put(None, "a", START_MS)]);
    assert_eq!(world.send(), ["a"]);
    world.write();
    assert!(!world.engine.queue.feeds.has_any());
    world.engine.close(Sends::AllEnded).unwrap();
    let late = world.engine.follow(Arc::new(OutcomeFeed::new(|| ())));
    assert!(late.read(1).is_over);
}
