//! Runs one kind of operation [`COUNT`] times on a timer with a manual clock, in [`counted`]: callgrind counts the
//! instructions of that function only. `python -m benches.instructions` runs it, and `tests/python/test_instructions.py`
//! checks the counts.
//!
//! Nothing depends on time or chance, so two runs give the same counts, except for the instructions of the allocator.
//!
//!     instructions cancel     # prints COUNT

use std::hint::black_box;
use std::num::NonZeroU64;

use tickwheel::{Clock, Config, Handle, Released, Timer, When};

const COUNT: u64 = 50_000;
const HOUR_US: u64 = 3_600_000_000;
/// About 17 are due in each millisecond, as with a million in a minute.
const FIRE_WITHIN_MS: u64 = COUNT / 17;
const DENSE_WITHIN_MS: u64 = 100;
const AT_A_TIME: usize = 64;

type Numbers = Timer<NonZeroU64>;

/// The function that is counted: callgrind finds it by its name.
#[inline(never)]
fn counted<R>(work: impl FnOnce() -> R) -> R {
    work()
}

fn main() {
    let timer = Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good");
    match std::env::args().nth(1).as_deref() {
        Some("add") => add(&timer),
        Some("cancel") => cancel(&timer),
        Some("cancel_many") => cancel_many(&timer),
        Some("reschedule") => reschedule(&timer),
        Some("fire") => fire(&timer),
        Some("fire_dense") => fire_dense(),
        other => panic!("an operation is expected, and not {other:?}"),
    }
    println!("{COUNT}");
}

fn add(timer: &Numbers) {
    let delays = delays(HOUR_US);
    counted(|| {
        for delay in &delays {
            black_box(timer.add(*delay, NonZeroU64::MIN).expect("in range"));
        }
    });
}

fn cancel(timer: &Numbers) {
    let handles = filled(timer);
    counted(|| handles.iter().all(|handle| timer.cancel(*handle).is_some()));
    assert!(timer.is_empty());
}

fn cancel_many(timer: &Numbers) {
    let handles = filled(timer);
    counted(|| {
        for handles in handles.chunks(AT_A_TIME) {
            black_box(timer.cancel_many(handles));
        }
    });
    assert!(timer.is_empty());
}

fn reschedule(timer: &Numbers) {
    let moves = moves(timer);
    counted(|| {
        for (handle, delay) in &moves {
            assert!(timer.reschedule(*handle, *delay).expect("in range"), "pending");
        }
    });
}

/// From the wheel to the claim.
fn fire(timer: &Numbers) {
    fill(timer, FIRE_WITHIN_MS * 1000);
    fire_all(timer, FIRE_WITHIN_MS);
}

/// As [`fire`], with all in one tick: the front sorts them, the wheel does not.
fn fire_dense() {
    let config = Config { tick_ms: 10 * DENSE_WITHIN_MS, ..Config::default() };
    let timer = Timer::new(&config, Clock::manual(0)).expect("the settings are good");
    for delay in delays(DENSE_WITHIN_MS * 1000) {
        let When::AfterUs(delay_us) = delay else { continue };
        let due = When::AfterUs(10 * DENSE_WITHIN_MS * 1000 + delay_us);
        timer.add(due, NonZeroU64::MIN).expect("in range");
    }
    fire_all(&timer, 11 * DENSE_WITHIN_MS);
}

fn fire_all(timer: &Numbers, within_ms: u64) {
    counted(|| {
        for now_ms in 1..=within_ms {
            timer.clock().set_us(now_ms * 1000);
            timer.advance(&mut |released: Released| {
                for ticket in released.tickets {
                    drop(black_box(timer.claim(ticket).expect("nothing was cancelled")));
                }
            });
        }
    });
    assert!(timer.is_empty());
}

/// Numbers without a pattern: the fractional parts of multiples of the golden ratio.
fn numbers() -> impl Iterator<Item = u64> {
    (1..=COUNT).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11)
}

fn delays(within_us: u64) -> Vec<When> {
    numbers().map(|number| When::AfterUs(number % within_us)).collect()
}

fn fill(timer: &Numbers, within_us: u64) -> Vec<Handle> {
    let add = |delay| timer.add(delay, NonZeroU64::MIN).expect("in range");
    delays(within_us).into_iter().map(add).collect()
}

/// Fills the timer, and returns the handles in an order that is not that of the adds.
fn filled(timer: &Numbers) -> Vec<Handle> {
    let mut keyed: Vec<_> = numbers().zip(fill(timer, HOUR_US)).collect();
    keyed.sort_unstable_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, handle)| handle).collect()
}

fn moves(timer: &Numbers) -> Vec<(Handle, When)> {
    filled(timer).into_iter().zip(delays(HOUR_US)).collect()
}
