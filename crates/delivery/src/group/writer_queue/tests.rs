use super::*;
use crate::group::items::Item;

#[test]
fn a_large_ticket_is_added_while_small_ones_wait__d8() {
    let queue = queue();
    assert!(is_added(&queue, 1));
    assert!(is_added(&queue, 2 * QUEUE_BYTES), "small tickets that never end do not keep a large one out");
    assert!(!is_added(&queue, 1), "while it waits for groups, nothing is added");
    queue.take_out(&mut queue.lock(), 1, 2 * QUEUE_BYTES);
    assert!(is_added(&queue, 1));
    queue.reject(&DeliveryError::Closed);
    assert!(queue.budget.take(2 * QUEUE_BYTES as isize), "nothing is queued, so nothing is taken");
}

/// Otherwise bodies that wait for room in the queue would wait for each other.
#[test]
fn what_was_received_finds_room_in_the_queue_though_the_budget_is_full__d8() {
    let queue = queue();
    while queue.budget.take(1 << 20) {}
    assert!(is_added(&queue, 1 << 20), "there is room for one group");
    assert!(is_added(&queue, QUEUE_BYTES));
    assert!(!is_added(&queue, 1));
    queue.budget.take(-(1 << 30));
    assert!(is_added(&queue, 1), "no body is on its way any more");
}

/// Its budget has three times as much as is queued whatever else there is.
fn queue() -> WriterQueue {
    WriterQueue::new(0, false, Arc::new(Budget::new(2 * QUEUE_BYTES)))
}

fn is_added(queue: &WriterQueue, bytes: usize) -> bool {
    let item = Item::Look { id: "x".repeat(bytes), key: None };
    let ticket = Ticket::new(vec![item], Box::new(|_| {}));
    queue.submit(ticket, true, Some(Duration::ZERO)).unwrap().is_none()
}

/// A reader submits parts in order, each with its place in the input. The place of one must not be on disk without those
/// before it.
#[test]
fn what_follows_a_refused_ticket_is_refused_until_one_follows_none__d6_d11() {
    let queue = queue();
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
