use super::*;
use crate::group::items::Item;

#[test]
fn a_large_ticket_is_added_while_small_ones_wait__d8() {
    let queue = WriterQueue::new(0, false);
    let is_added = |bytes: usize| {
        let item = Item::Look { id: "x".repeat(bytes), key: None };
        let ticket = Ticket::new(vec![item], Box::new(|_| {}));
        queue.submit(ticket, true, Some(Duration::ZERO)).unwrap().is_none()
    };
    assert!(is_added(1));
    assert!(is_added(QUEUE_BYTES), "small tickets that never end do not keep a large one out");
    assert!(!is_added(1), "while it waits for groups, nothing is added");
}

/// A reader submits parts in order, each with its place in the input. The place of one must not be on disk without those
/// before it.
#[test]
fn what_follows_a_refused_ticket_is_refused_until_one_follows_none__d6_d11() {
    let queue = WriterQueue::new(0, false);
    let submit = |follows: bool| {
        let mut ticket = Ticket::new(Vec::new(), Box::new(|_| {}));
        ticket.follows = follows;
        queue.submit(ticket, true, Some(Duration::ZERO))
    };
    let waits =
        |submitted: &Result<Option<Ticket>, DeliveryError>| matches!(submitted, Err(DeliveryError::StoreWaits(_)));
    submit(true).unwrap();
    queue.wait_for_store(&StoreError::new("s.db".as_ref(), "the disk is full", "make room"), None);
    queue.go_on();
    assert!(waits(&submit(true)), "the one before it was refused, and it may not have been seen yet");
    assert!(waits(&submit(true)));
    submit(false).unwrap();
    submit(true).unwrap();
    queue.wait_for_store(&StoreError::new("s.db".as_ref(), "the disk is full", "make room"), None);
    queue.go_on();
    assert!(waits(&submit(true)));
}
