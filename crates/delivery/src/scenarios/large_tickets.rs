//! One submit may be larger than a group. Then several groups commit it (D5, D11).

use super::testing::{ByHand, START_MS, answered, arrives, put};
use crate::base::error::DeliveryError;
use crate::group::items::{Answer, Item};
use crate::run::settings::Settings;

/// The most items of a group.
const GROUP: usize = 4_096;

fn later(count: usize, name: &str) -> Vec<Item> {
    (0..count).map(|number| put(None, &format!("{name}{number}"), START_MS + 3_600_000)).collect()
}

#[test]
fn a_large_ticket_is_answered_after_its_last_group__d5() {
    let world = ByHand::start(Settings::default());
    let mut items = later(2 * GROUP + 1, "m");
    items.push(items[0].clone());
    let receipt = world.submit(items);
    for groups in 1..=2 {
        assert!(world.engine.write(&|| Ok(())).unwrap(), "there is more");
        assert_eq!((world.engine.open_count(), answered(&receipt).is_some()), ((groups * GROUP) as u64, false));
    }
    world.write();
    let mut expected = vec![Answer::Accepted; 2 * GROUP + 1];
    expected.push(Answer::Duplicate);
    assert_eq!(answered(&receipt).unwrap().unwrap(), expected);
}

#[test]
fn small_tickets_share_a_group_and_the_last_may_be_cut__d5() {
    let world = ByHand::start(Settings::default());
    let sizes = [GROUP - 1, 0, 3, 2];
    let receipts = sizes.map(|size| world.submit(later(size, &format!("{size} "))));
    assert!(world.engine.write(&|| Ok(())).unwrap(), "there is more");
    assert_eq!(receipts.each_ref().map(|it| answered(it).is_some()), [true, true, false, false]);
    world.write();
    assert_eq!(receipts.map(|it| answered(&it).unwrap().unwrap().len()), sizes);
}

#[test]
fn a_large_ticket_that_fails_in_its_second_group_has_the_error_and_keeps_the_first__d5() {
    let world = ByHand::start(Settings::default());
    world.give(vec![put(None, "due", START_MS)]);
    let receipts = [world.submit(later(2 * GROUP, "m")), world.submit(later(1, "other"))];
    world.engine.write(&|| Ok(())).unwrap();
    assert_eq!(world.send(), ["due"]);
    let broken = || Err(DeliveryError::Failed("broken".to_owned()));
    assert_eq!(world.engine.write(&broken).unwrap_err().to_string(), "broken");
    for receipt in receipts {
        assert_eq!(answered(&receipt).unwrap().unwrap_err().to_string(), "broken");
    }
    let world = world.again();
    assert_eq!(world.engine.open_count(), GROUP as u64 + 1, "`due`, and the first group");
    let answers = world.give(later(2 * GROUP, "m"));
    assert!(answers[..GROUP].iter().all(|it| *it == Answer::Duplicate));
    assert!(answers[GROUP..].iter().all(|it| *it == Answer::Accepted));
    let sent = world.deliver(arrives);
    assert_eq!(sent.iter().map(|it| (it.body.id(), it.redelivered)).collect::<Vec<_>>(), [("due", true)]);
}
