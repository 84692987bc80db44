//! A cancel has a definite answer, wherever the message is (D7).

use super::testing::{ByHand, START_MS, answered, arrives, cancel, ids, put};
use crate::due::window::Bounds;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::run::settings::Settings;
use crate::sinks::{Delivery, Verdict};

fn due(key: Option<&str>, id: &str, after_ms: i64) -> Item {
    put(key, id, START_MS + after_ms)
}

#[test]
fn a_cancel_before_its_message_and_after_its_end_has_an_answer_and_is_counted__d7() {
    let world = ByHand::start(Settings::default());
    let k = Some("k");
    assert_eq!(world.give(vec![due(k, "a", 10), cancel(None, "a")]), [Answer::Accepted, Answer::Unknown]);
    let again = world.give(vec![cancel(k, "a"), cancel(k, "a"), due(k, "a", 10)]);
    assert_eq!(again, [Answer::Cancelled; 3]);
    let early = world.give(vec![cancel(k, "b"), due(k, "b", 10), due(k, "b", 10), due(k, "b", 11)]);
    assert_eq!(early, [Answer::Unknown, Answer::Cancelled, Answer::Cancelled, Answer::Conflict]);
    world.give(vec![due(k, "c", 0)]);
    assert_eq!(ids(&world.deliver(arrives)), ["c"]);
    assert_eq!(world.give(vec![cancel(k, "c")]), [Answer::Delivered]);
    assert!(world.pass_ms(100, arrives).is_empty());
    let it = world.engine.close(Sends::AllEnded).unwrap();
    assert_eq!((it.accepted, it.delivered, it.cancelled, it.not_delivered()), (3, 1, 2, 0));
    assert_eq!((it.duplicates, it.conflicts), (3, 1), "the second cancel of `a` is one of the duplicates");
    assert_eq!(
        (it.cancels_unknown, it.cancels_too_late),
        (1, 1),
        "the cancel of `a` without a key waits for its message"
    );
}

#[test]
fn a_message_and_its_cancel_in_one_group_leave_nothing_to_send__d7() {
    let world = ByHand::start(Settings::default());
    let k = Some("k");
    let items = vec![due(k, "a", 5), cancel(k, "a"), due(k, "b", 5), due(None, "c", 5), cancel(None, "c")];
    let expected = [Answer::Accepted, Answer::Cancelled, Answer::Accepted, Answer::Accepted, Answer::Cancelled];
    assert_eq!(world.give(items), expected);
    assert_eq!(world.engine.in_memory().0, 1);
    assert_eq!(ids(&world.pass_ms(100, arrives)), ["b"]);
    assert!(world.engine.is_empty());
}

#[test]
fn a_message_that_is_sent_before_its_cancel_is_in_a_group_is_delivered__d7() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due(Some("k"), "a", 5), due(Some("k"), "b", 6)]);
    let receipt = world.submit(vec![cancel(Some("k"), "a")]);
    world.advance_ms(10);
    assert_eq!(world.send(), ["a"]);
    world.write();
    assert_eq!(answered(&receipt).unwrap().unwrap(), [Answer::Delivered]);
    assert_eq!(world.send(), ["b"]);
}

/// After a step back of the wall clock the next attempt would be early.
#[test]
fn a_message_that_failed_and_went_back_on_the_timer_can_be_cancelled__d7() {
    let world = ByHand::start(Settings::default());
    world.give(vec![due(Some("k"), "a", 0), due(Some("k"), "b", 0)]);
    let first_fails =
        |it: &Delivery| if it.attempt < 2 { Verdict::Refused("no".to_owned()) } else { Verdict::Delivered };
    assert_eq!(ids(&world.deliver(first_fails)), ["a"]);
    world.step_wall_clock_ms(-10_000);
    assert!(world.pass_ms(2_000, first_fails).is_empty());
    let look = Item::Look { id: "a".to_owned(), key: Some("k".to_owned()) };
    assert_eq!(world.give(vec![look, cancel(Some("k"), "a")]), [Answer::Waiting, Answer::Cancelled]);
    assert_eq!(ids(&world.pass_ms(20_000, arrives)), ["b"]);
}

/// Each message is due before all earlier ones, so many go back to the store.
#[test]
fn a_cancel_finds_a_message_in_memory_or_only_in_the_store__d7_d8() {
    let bounds = Bounds { messages: 40, bytes: 40_000, lane_messages: 4, lane_bytes: 6_000 };
    let world = ByHand::start(Settings { bounds, ..Settings::default() });
    let key = |number: i64| (number % 2 == 1).then_some("k");
    for number in 0..300 {
        world.give(vec![due(key(number), &number.to_string(), 9_000 - 10 * number)]);
    }
    let in_memory = world.engine.in_memory().0;
    assert!((1..300).contains(&in_memory), "{in_memory}");
    let cancels = (0..300).step_by(3).map(|number| cancel(key(number), &number.to_string())).collect();
    assert_eq!(world.give(cancels), [Answer::Cancelled; 100]);
    let sent = world.pass_ms(20_000, arrives);
    let left: Vec<String> = (0..300).rev().filter(|number| number % 3 > 0).map(|number| number.to_string()).collect();
    assert_eq!(ids(&sent), left);
    assert!(world.engine.is_empty());
}
