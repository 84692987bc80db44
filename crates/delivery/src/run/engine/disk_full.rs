//! The disk is full at any page. Waiting tickets get an error with advice, no accepted message is lost, and the run
//! goes on once there is room (rules D5, D11).

use super::Settings;
use crate::base::error::DeliveryError;
use crate::group::items::{Answer, Item};
use crate::group::writer::Sends;
use crate::scenarios::testing::{ByHand, START_MS, answered, put};

fn several(name: &str, count: usize, after_ms: i64) -> Vec<Item> {
    (0..count).map(|place| put(None, &format!("{name} {place}"), START_MS + after_ms)).collect()
}

fn is_full(error: &DeliveryError) -> bool {
    error.to_string().ends_with("make room on the disk and run again: nothing that was accepted is lost")
}

fn looks(count: usize, name: &str) -> Vec<Item> {
    (0..count).map(|place| Item::Look { id: format!("{name} {place}"), key: None }).collect()
}

#[test]
fn an_accept_has_the_error_with_advice_and_the_rest_is_kept__d5() {
    let world = ByHand::start(Settings::default());
    assert_eq!(world.give(several("before", 1, 10)), [Answer::Accepted]);
    world.engine.with_store(|store| store.fill(0));
    let receipts: Vec<_> = (0..3).map(|part| world.submit(several(&format!("lost {part}"), 2_000, 10))).collect();
    let failed = world.engine.write(&|| Ok(())).unwrap_err();
    assert!(is_full(&failed), "{failed}");
    for receipt in receipts {
        assert!(is_full(&answered(&receipt).expect("it has failed").unwrap_err()));
    }
    assert!(is_full(&world.engine.submit(Vec::new()).unwrap_err()));
    assert!(world.take().is_none());
    let world = world.again();
    assert_eq!(world.engine.open_count(), 1);
    assert_eq!(world.give(several("lost 1", 1, 10)), [Answer::Accepted]);
    world.advance_ms(10);
    let mut sent = world.send();
    world.write();
    sent.append(&mut world.send());
    sent.sort_unstable();
    assert_eq!(sent, ["before 0", "lost 1 0"]);
}

/// One group has outcomes and messages. Wherever it fails, the store has all of the group or nothing.
#[test]
fn wherever_in_a_group_the_disk_is_full_nothing_of_it_is_left_and_nothing_is_lost__d5() {
    let (mut failures, mut left) = (0, 0);
    loop {
        let world = ByHand::start(Settings::default());
        world.give([several("due", 600, 10), several("far", 1, 60_000)].concat());
        world.advance_ms(10);
        let mut sent = 0;
        while let Some((flight, deliveries)) = world.take() {
            sent += deliveries.len();
            world.engine.settle(flight, crate::Verdicts::Delivered, None);
        }
        assert_eq!(sent, 600);
        let receipt = world.submit(several("new", 600, 20));
        world.engine.with_store(|store| store.fill(left));
        let written = world.engine.write(&|| Ok(()));
        let summary = world.engine.summary();
        let Err(error) = written else {
            assert_eq!((summary.delivered, summary.accepted), (600, 1_201));
            break;
        };
        assert!(is_full(&error), "{error}");
        assert!(is_full(&answered(&receipt).expect("it has failed").unwrap_err()));
        assert_eq!((summary.delivered, summary.accepted), (0, 601), "what is not on disk is not counted");
        assert!(world.engine.close(Sends::Unknown).is_ok());
        let world = world.again();
        assert!(world.give(looks(600, "new")).iter().all(|it| *it == Answer::Unknown));
        world.advance_ms(60_000);
        let mut again = Vec::new();
        for _ in 0..100 {
            if let Some((flight, deliveries)) = world.take() {
                world.engine.settle(flight, crate::Verdicts::Delivered, None);
                again.extend(deliveries.iter().map(|it| (it.body.id().to_owned(), it.redelivered)));
            }
            world.write();
        }
        assert_eq!(again.len(), 601);
        assert!(again.iter().all(|(id, is_marked)| *is_marked == (id != "far 0")), "{again:?}");
        failures += 1;
        left += 1;
    }
    assert!(failures > 3, "it failed at {failures} places");
}
