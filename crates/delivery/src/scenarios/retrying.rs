//! A message that is not accepted is tried again after its wait, until it is a dead letter. Then its key goes on (D6).

use super::testing::{ByHand, START_MS, arrives, ids, put};
use crate::due::dispatcher::Event;
use crate::due::retry::Retry;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict};

fn refused(_: &Delivery) -> Verdict {
    Verdict::Refused("no".to_owned())
}

fn gone(retry_after_ms: Option<u64>) -> impl Fn(&Delivery) -> Verdict {
    move |_| Verdict::Unanswered { reason: "gone".to_owned(), retry_after_ms }
}

fn due(id: &str, after_ms: i64) -> Item {
    put(Some("k"), id, START_MS + after_ms)
}

fn with(retry: Retry) -> ByHand {
    ByHand::start(Settings { retry, ..Settings::default() })
}

/// The reasons of the dead letters.
fn reasons(world: &ByHand) -> Vec<String> {
    let letters = world.engine.queue.take_letters().map_or_else(Vec::new, |(letters, _)| letters);
    letters.into_iter().map(|it| it.reason).collect()
}

#[test]
fn the_back_off_passes_between_two_attempts__d6() {
    for (waits_ms, expected) in [
        (vec![], [100..=200, 200..=400, 400..=800, 800..=1_600]),
        (vec![200, 3_000, 500], [200..=200, 3_000..=3_000, 500..=500, 500..=500]),
    ] {
        let world = with(Retry { max_attempts: 5, first_ms: 200, longest_ms: 60_000, waits_ms, waits_end: false });
        world.give(vec![due("a", 0)]);
        let sent = world.pass_ms(10_000, refused);
        assert_eq!(sent.iter().map(|it| it.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        for (two, expected) in sent.windows(2).zip(expected) {
            let gap_ms = two[1].delivered_at_ms - two[0].delivered_at_ms;
            assert!(expected.contains(&gap_ms) || expected.contains(&(gap_ms - 1)), "{gap_ms} ms: {expected:?}");
        }
        assert_eq!(reasons(&world), ["gave up after 5 attempts: no"]);
    }
}

#[test]
fn the_end_of_the_waits_is_the_end_of_the_message_whatever_the_answers_were__d6() {
    let answers: [fn(&Delivery) -> Verdict; 3] = [
        refused,
        |_| Verdict::Failed { reason: "no".to_owned(), retry_after_ms: None },
        |_| Verdict::Unanswered { reason: "no".to_owned(), retry_after_ms: None },
    ];
    for answer in answers {
        let retry = Retry { max_attempts: 2, waits_ms: vec![200, 3_000, 500], waits_end: true, ..Retry::default() };
        let world = ByHand::start(Settings { retry, unanswered_for_ms: 1_000, ..Settings::default() });
        world.give(vec![due("a", 0)]);
        let sent = world.pass_ms(100_000, answer);
        let gaps: Vec<_> = sent.windows(2).map(|two| (two[1].delivered_at_ms - two[0].delivered_at_ms) / 10).collect();
        assert_eq!(gaps, [20, 300, 50]);
        assert_eq!(reasons(&world), ["gave up after 4 attempts: no"]);
    }
}

#[test]
fn many_failures_of_one_message_are_one_event_with_their_count__d15() {
    let world = with(Retry { max_attempts: 1_000, waits_ms: vec![1_000], ..Retry::default() });
    world.give(vec![due("a", 0)]);
    assert_eq!(world.pass_ms(119_500, refused).len(), 120);
    let failed = |event: &Event| if let Event::Failed { times, .. } = event { Some(*times) } else { None };
    assert_eq!(world.engine.take_events().iter().filter_map(failed).collect::<Vec<_>>(), [1, 10, 100]);
}

#[test]
fn a_dead_letter_has_the_message_and_its_key_goes_on_and_it_can_be_put_again__d6() {
    let world = with(Retry { max_attempts: 3, ..Retry::default() });
    world.give(vec![due("a", 0), due("b", 0)]);
    let only_b = |it: &Delivery| if it.body.id() == "a" { refused(it) } else { Verdict::Delivered };
    assert_eq!(ids(&world.pass_ms(60_000, only_b)), ["a", "a", "a", "b"]);
    let (letters, _) = world.engine.queue.take_letters().expect("a dead letter");
    assert_eq!((&*letters[0].source, &*letters[0].reason), ("delivery", "gave up after 3 attempts: no"));
    let record = String::from_utf8(letters[0].record.clone()).unwrap();
    assert_eq!(record, r#"{"id":"a","key":"k","due":"2023-11-14T22:13:20.000Z","payload":{"x":1}}"#);
    let it = world.engine.summary();
    assert_eq!((it.delivered, it.undeliverable, it.dead_letters, it.not_delivered()), (1, 1, 1, 0));
    let look = Item::Look { id: "a".to_owned(), key: Some("k".to_owned()) };
    assert_eq!(world.give(vec![look, due("a", 0)]), [Answer::Dead, Answer::Accepted]);
    let again = world.deliver(arrives);
    assert_eq!((ids(&again), again[0].attempt), (vec!["a"], 1));
}

#[test]
fn a_message_without_an_answer_is_given_up_after_its_own_time__d6() {
    let world = ByHand::start(Settings { unanswered_for_ms: 60_000, ..Settings::default() });
    world.give(vec![due("first", 0), due("later", 500_000)]);
    world.pass_ms(50_000, gone(None));
    assert!(reasons(&world).is_empty());
    world.pass_ms(80_000, gone(None));
    let [reason] = &reasons(&world)[..] else { panic!("one dead letter") };
    assert!(reason.ends_with(": no success in 60 s (--unanswered-for), at last: gone"), "{reason}");
    assert_eq!(ids(&world.pass_ms(450_000, arrives)), ["later"]);
}

#[test]
fn a_destination_is_asked_again_at_its_time_and_after_an_hour_at_most__d6() {
    for (asked_ms, wait_ms) in [(20_000, 20_000), (u64::MAX, 3_600_000)] {
        let world = ByHand::start(Settings::default());
        world.give(vec![due("a", 0)]);
        world.deliver(gone(Some(asked_ms)));
        assert!(world.pass_ms(wait_ms - 1, arrives).is_empty(), "{asked_ms}");
        assert_eq!(world.pass_ms(2, arrives).len(), 1, "{asked_ms}");
    }
}
