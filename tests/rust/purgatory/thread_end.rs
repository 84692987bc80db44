//! Calls from the destructor of a thread-local value: the purgatory works until the end of a thread (P6, T13).

use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Op, Purgatory, Wait, join, purgatory, spawn, until_empty, wait, wait_with, watch};

/// Set in the process of its own that a test runs in: an abort must not end the other tests.
const IN_CHILD: &str = "TICKWHEEL_TEST_IN_CHILD";

/// Runs the body in a process of its own, which runs only this test.
fn in_child(test: &str, body: impl FnOnce()) {
    if std::env::var_os(IN_CHILD).is_some() {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--nocapture"]).env(IN_CHILD, "1").output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

struct AtEnd(Option<Box<dyn FnOnce()>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|body| body());
    }
}

thread_local! { static AT_END: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) }; }

/// Runs the body at the end of a thread that has used the purgatory, after the purgatory's own thread-local values are
/// dropped, if they are. Most systems drop the last value first, some drop the first value first.
fn at_thread_end(purgatory: &Arc<Purgatory>, body: impl FnOnce() + Send + 'static) {
    for is_used_first in [true, false] {
        let there = Arc::clone(purgatory);
        join([spawn(move || {
            if is_used_first {
                there.check_and_complete(&9);
            }
            AT_END.with_borrow_mut(|_| ());
            there.check_and_complete(&9);
        })]);
    }
    let there = Arc::clone(purgatory);
    join([spawn(move || {
        AT_END.with_borrow_mut(|at_end| at_end.0 = Some(Box::new(body)));
        there.check_and_complete(&9);
    })]);
}

#[test]
fn a_thread_local_destructor_may_check_and_complete__p6() {
    in_child("purgatory::thread_end::a_thread_local_destructor_may_check_and_complete__p6", || {
        let (timer, purgatory) = purgatory();
        let (uses, by_hand, checked) = (wait(), wait(), wait());
        watch(&purgatory, &uses, [9]);
        let there = Arc::clone(&purgatory);
        // Its try completes another operation, and asks for the check of a third one.
        let (other, third) = (wait(), wait());
        let (completes, asks) = (other.clone(), third.clone());
        let on_try = move |op: &Op| {
            if op.is_ready.load(Ordering::Acquire) {
                assert!(completes.force_complete());
                assert_eq!(completes.ended(), (0, 0), "it completes after the try");
                asks.ready();
                assert_eq!(there.check_and_complete(&4), 0, "it is made after the try");
                there.check_and_complete(&2);
            }
        };
        let acts = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
        for (key, op) in [(1, &by_hand), (2, &acts), (3, &other), (4, &third), (5, &checked)] {
            watch(&purgatory, op, [key]);
        }
        let (there, ops) = (Arc::clone(&purgatory), [&by_hand, &acts, &checked].map(Clone::clone));
        at_thread_end(&purgatory, move || {
            assert!(ops[0].force_complete());
            ops[1].ready();
            assert_eq!(there.check_and_complete(&2), 1);
            ops[2].ready();
            assert_eq!(there.check_and_complete(&5), 1);
        });
        for op in [&by_hand, &acts, &other, &third, &checked] {
            assert_eq!(op.ended(), (1, 0));
        }
        assert!(uses.force_complete());
        until_empty(&timer, &purgatory);
    });
}
