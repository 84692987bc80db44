//! The order of release while other threads add, cancel and advance: an earlier task is never behind a later one.

use std::sync::Arc;

use super::{RUNS, advance, join, pass_time, sample, spawn, timer, with_reaper};
use crate::sync::{Mutex, unbounded};
use crate::timer::STEP;
use crate::when::When;

#[test]
fn a_bucket_flushed_in_steps_loses_nothing_and_keeps_the_order__t6_t9() {
    let count = STEP as u64 + 2;
    sample(200, move || {
        let timer = timer();
        let handles: Vec<_> = {
            let mut state = timer.lock_state();
            // One bucket of level 2, [20, 40), more than one step long; what was added last is due first.
            let due = |task: u64| When::AtUs(25_000 + count - task);
            let mut add = |task| {
                let due = state.admit(timer.clock(), due(task), 1).unwrap();
                state.add(due, task, 0).0
            };
            (0..count).map(&mut add).collect()
        };
        timer.clock().set_us(40_000);
        let order = Arc::new(Mutex::new(Vec::new()));
        let advancer = {
            let (timer, order) = (Arc::clone(&timer), Arc::clone(&order));
            spawn(move || {
                let tickets = advance(&timer);
                // All under one lock, as a group is claimed: a thousand turns would only dilute the sample.
                let mut state = timer.lock_state();
                let claimed = tickets.into_iter().filter_map(|ticket| state.claim(ticket, 40_000));
                order.lock().extend(claimed.map(|claimed| (claimed.due_us, claimed.task)));
            })
        };
        let mut cancelled = 0;
        for task in [0, STEP - 1, STEP, count as usize - 1] {
            cancelled += u64::from(timer.cancel(handles[task]).is_some());
        }
        // Added in the middle of the flush, due now: it overtakes nothing.
        timer.add(When::AtUs(0), count).unwrap();
        join([advancer]);
        let mut order = std::mem::take(&mut *order.lock());
        for ticket in advance(&timer) {
            order.extend(timer.claim(ticket).map(|claimed| (claimed.due_us, claimed.task)));
        }
        assert!(order.is_sorted());
        assert_eq!(order.len() as u64 + cancelled, count + 1);
    });
}

#[test]
fn two_who_advance_hand_over_in_order__t6() {
    sample(RUNS, || {
        let timer = timer();
        for due_us in [0, 1_000, 2_000, 2_500] {
            timer.add(When::AtUs(due_us), due_us).unwrap();
        }
        let (queue, released) = unbounded();
        let advancers = [1_000, 3_000].map(|now_us| {
            let (timer, mut queue) = (Arc::clone(&timer), queue.clone());
            spawn(move || {
                timer.clock().set_us(now_us);
                timer.advance(&mut queue);
            })
        });
        drop(queue);
        join(advancers);
        let mut order = Vec::new();
        while let Ok(batch) = released.recv() {
            order
                .extend(batch.tickets.into_iter().filter_map(|ticket| timer.claim(ticket)).map(|claimed| claimed.task));
        }
        assert_eq!(order, [0, 1_000, 2_000, 2_500]);
    });
}

#[test]
fn adds_while_the_reaper_advances_overtake_nothing__t6_t16() {
    sample(RUNS, || {
        let timer = timer();
        let (reaper, released) = with_reaper(&timer);
        timer.add(When::AtUs(25_000), "first").unwrap();
        let time = {
            let timer = Arc::clone(&timer);
            spawn(move || [15_000, 20_000, 26_000].into_iter().for_each(|now_us| pass_time(&timer, now_us)))
        };
        // By another way: the first came in on level 2, this one on level 1 if the clock has moved.
        timer.add(When::AtUs(25_000), "second").unwrap();
        timer.add(When::AfterUs(0), "third").unwrap();
        join([time]);
        let mut order = Vec::new();
        while order.len() < 3 {
            let tickets = released.recv().unwrap().tickets;
            order.extend(tickets.into_iter().filter_map(|ticket| timer.claim(ticket)).map(|claimed| claimed.task));
        }
        timer.close();
        join([reaper]);
        order.retain(|task| *task != "third");
        assert_eq!(order, ["first", "second"]);
    });
}
