//! An example for each call of the store.

use super::making::{Shelf, TINY, count, done, held, incoming, incoming_with, new, positions};
use crate::store::{Accepted, Attempts, Limits, Outcome};

#[test]
fn a_message_is_accepted_once_and_known_after() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    store.begin().unwrap();
    let answers = store.accept(&[incoming("a", 5), incoming("b", 6), incoming("a", 5)], 0).unwrap();
    assert_eq!(answers[..2], [new(1), new(2)]);
    let Accepted::Known(known) = &answers[2] else { panic!("it is known: {answers:?}") };
    assert_eq!((known.seq, known.due_ms, known.outcome), (1, 5, None));
    assert_eq!(known.content, incoming("a", 5).content);
    assert!(store.is_open(known).unwrap());
    assert_eq!(store.find(None, "a").unwrap().as_ref(), Some(known));
    assert_eq!(store.find(Some(""), "a").unwrap(), None);
    assert_eq!((store.open_count(), store.last_seq()), (2, 2));
    store.commit().unwrap();
}

#[test]
fn after_a_crash_near_messages_wait_and_those_that_may_have_been_sent_are_marked() {
    let shelf = Shelf::new(TINY);
    let mut store = shelf.open();
    store.begin().unwrap();
    let items: Vec<_> =
        (0..10).map(|number| incoming_with(Some("k"), &number.to_string(), 10 + number, b"[1]")).collect();
    store.accept(&items, 0).unwrap();
    let lane = items[0].lane;
    store.hold(&[held(9, 18, lane), held(10, 19, lane)]).unwrap();
    store.finish(&[done(1, 10, Outcome::Delivered, 3), done(3, 12, Outcome::Delivered, 3)]).unwrap();
    store.note_send_limit(Some(15), &[(0, (18, 9))], &[(lane.unwrap(), Some((18, 9)))]).unwrap();
    store.upkeep(false).unwrap();
    store.commit().unwrap();
    let store = shelf.open();
    assert_eq!(positions(&store), [(11, 2), (13, 4), (14, 5), (15, 6), (16, 7), (17, 8), (18, 9), (19, 10)]);
    let suspects = store.may_have_arrived().unwrap();
    assert_eq!(suspects.iter().map(|row| row.seq).collect::<Vec<_>>(), [2, 4, 5, 6]);
    assert_eq!(suspects[0].lane, lane);
    assert_eq!(suspects[0].size as usize, items[1].message.size_in_memory());
    assert_eq!(store.open_count(), 8);
    let bodies = store.bodies(&[2, 10]).unwrap();
    assert_eq!((bodies[&2].body.id(), bodies[&10].body.payload()), ("1", &b"[1]"[..]));
}

#[test]
fn of_a_lane_that_is_held_back_only_what_was_in_memory_is_marked() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    store.begin().unwrap();
    let items: Vec<_> = (0..9).map(|number| incoming(&number.to_string(), 10)).collect();
    store.accept(&items, 0).unwrap();
    let rows: Vec<_> = (1..=9).map(|seq| held(seq, 10, Some(seq % 2))).collect();
    store.hold(&rows).unwrap();
    store.note_send_limit(Some(50), &[(0, (10, 7))], &[(1, Some((10, 3))), (0, Some((10, 2)))]).unwrap();
    store.note_send_limit(Some(50), &[(0, (10, 7))], &[(0, None)]).unwrap();
    store.commit().unwrap();
    let mut store = shelf.open();
    let seqs =
        |store: &super::super::Store| store.may_have_arrived().unwrap().iter().map(|row| row.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&store), [1, 2, 4, 6]);
    store.begin().unwrap();
    store.note_send_limit(Some(50), &[(0, (10, 9))], &[]).unwrap();
    store.note_send_limit(None, &[], &[]).unwrap();
    store.commit().unwrap();
    assert_eq!(seqs(&shelf.open()), [1, 2, 4, 6], "a clean end leaves only what was marked before");
}

#[test]
fn a_dead_letter_may_be_put_again_and_a_cancelled_message_may_not() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    store.begin().unwrap();
    store.accept(&[incoming("dead", 5), incoming("cancelled", 5)], 0).unwrap();
    store.finish(&[done(1, 5, Outcome::Dead, 9), done(2, 5, Outcome::Cancelled, 9)]).unwrap();
    assert_eq!(store.find(None, "dead").unwrap().unwrap().outcome, Some(Outcome::Dead));
    let answers = store.accept(&[incoming("dead", 6), incoming("cancelled", 5)], 0).unwrap();
    let other = Accepted::New { seq: 3, again: Some(3), first: None, redelivered: false };
    assert_eq!(answers[0], other, "destinations know it by another digest");
    let Accepted::Known(known) = &answers[1] else { panic!("it is known: {answers:?}") };
    assert_eq!(known.outcome, Some(Outcome::Cancelled));
    assert!(matches!(&store.accept(&[incoming("dead", 6)], 0).unwrap()[0], Accepted::Known(known) if known.seq == 3));
    for (seq, before, again, first) in
        [(4, Outcome::Dead, 3, Some(3)), (5, Outcome::Expired, 3, Some(3)), (6, Outcome::Withdrawn, 6, None)]
    {
        store.finish(&[done(seq - 1, 6, before, 9)]).unwrap();
        let expected = Accepted::New { seq, again: Some(again), first, redelivered: first.is_some() };
        assert_eq!(store.accept(&[incoming("dead", 6)], 0).unwrap(), [expected], "{before:?}");
        assert_eq!(store.numbers_of(seq).unwrap(), (Some(again), first.or(Some(seq))));
    }
    store.commit().unwrap();
}

#[test]
fn a_cancel_that_came_first_is_the_outcome() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    store.begin().unwrap();
    store.remember_cancel(Some("k"), "a", 0, None).unwrap();
    store.remember_cancel(Some("k"), "a", 0, None).unwrap();
    assert_eq!(store.remembered_cancels(), 1);
    let answers = store.accept(&[incoming("a", 5), incoming_with(Some("k"), "a", 5, b"1")], 9).unwrap();
    assert_eq!(answers, [new(1), Accepted::CancelledBefore(2)]);
    assert_eq!((store.remembered_cancels(), store.open_count(), count(&store, "bodies")), (0, 1, 1));
    store.commit().unwrap();
    assert_eq!(positions(&shelf.open()), [(5, 1)]);
}

#[test]
fn attempts_are_kept_until_the_outcome() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    store.begin().unwrap();
    store.accept(&[incoming("a", 5), incoming("b", 6)], 0).unwrap();
    let attempts = Attempts {
        seq: 1,
        attempts: 2,
        counted: 1,
        waited_ms: 7,
        next_ms: Some(99),
        error: Some("500".into()),
        at_ms: 50,
        is_unanswered: true,
        strikes: 0,
        share: 0,
    };
    store.note_attempts(&[Attempts { attempts: 1, ..attempts.clone() }, attempts.clone()]).unwrap();
    store.commit().unwrap();
    let mut store = shelf.open();
    let plan = store.plan(0, (0, 0), 10, 10).unwrap();
    assert_eq!((plan[0].attempts, plan[0].next_ms, plan[1].attempts, plan[1].next_ms), (2, Some(99), 0, None));
    let attempts_of_1 = attempts.clone();
    assert_eq!(store.attempts(1).unwrap(), Some(attempts));
    store.begin().unwrap();
    store.finish(&[done(1, 5, Outcome::Delivered, 9)]).unwrap();
    assert_eq!((store.attempts(1).unwrap(), store.with_attempts), (None, 0));
    store.note_attempts(&[attempts_of_1]).unwrap();
    assert_eq!((store.attempts(1).unwrap(), store.with_attempts), (None, 0), "it has its outcome");
    store.commit().unwrap();
}

#[test]
fn an_outcome_for_what_is_not_open_is_an_error() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    store.begin().unwrap();
    store.accept(&[incoming("a", 5)], 0).unwrap();
    store.finish(&[done(1, 5, Outcome::Delivered, 9)]).unwrap();
    let error = store.finish(&[done(1, 5, Outcome::Delivered, 9)]).unwrap_err();
    assert!(format!("{error:?}").contains("message 1 is not open"), "{error:?}");
}

#[test]
fn a_store_may_be_moved_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<super::super::Store>();
}

#[test]
fn what_was_rolled_back_is_not_on_disk() {
    let shelf = Shelf::new(Limits::default());
    let mut store = shelf.open();
    store.begin().unwrap();
    store.accept(&[incoming("a", 5)], 0).unwrap();
    store.rollback().unwrap();
    store.rollback().unwrap();
    drop(store);
    let store = shelf.open();
    assert_eq!((store.find(None, "a").unwrap(), store.open_count(), store.last_seq()), (None, 0, 0));
}
