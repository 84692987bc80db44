//! The cost of a million timers on a manual clock, by criterion. Run `cargo bench --bench timer`, make a change and run it
//! again: criterion prints the difference.
//!
//! `benches/peers` measures other timers by the same names, and `benches/instructions` counts instructions. Each figure is
//! for a million operations, so milliseconds for all of them are nanoseconds for one.

use std::collections::VecDeque;
use std::hint::black_box;
use std::num::NonZeroU64;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tickwheel::{Clock, Config, Handle, Released, Timer, When};

const COUNT: u64 = 1_000_000;
const HOUR_US: u64 = 3_600_000_000;
const MINUTE_MS: u64 = 60_000;
const AT_A_TIME: usize = 64;

/// Rolling time-outs last this many milliseconds. In each of them some are added, and 10 ms later 99 of 100 are cancelled.
const ROLLING_FOR_MS: u64 = 40_000;
const ROLLING_PER_MS: u64 = COUNT / ROLLING_FOR_MS;
const ROLLING_LAG: usize = 10 * ROLLING_PER_MS as usize;
const ROLLING_DELAY: When = When::AfterUs(30_000_000);

type Numbers = Timer<NonZeroU64>;

/// Numbers without a pattern: the fractional parts of multiples of the golden ratio.
fn numbers() -> impl Iterator<Item = u64> {
    (1..=COUNT).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11)
}

fn delays(within_us: u64) -> impl Iterator<Item = When> {
    numbers().map(move |number| When::AfterUs(number % within_us))
}

fn empty() -> Numbers {
    Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good")
}

fn add(timer: &Numbers, delay: When) -> Handle {
    timer.add(delay, NonZeroU64::MIN).expect("in range")
}

/// A timer, and its handles in an order that is not that of the adds.
fn filled() -> (Numbers, Vec<Handle>) {
    let timer = empty();
    let mut keyed: Vec<_> = numbers().zip(delays(HOUR_US).map(|delay| add(&timer, delay))).collect();
    keyed.sort_unstable_by_key(|(key, _)| *key);
    (timer, keyed.into_iter().map(|(_, handle)| handle).collect())
}

fn moves() -> (Numbers, Vec<(Handle, When)>) {
    let (timer, handles) = filled();
    (timer, handles.into_iter().zip(delays(HOUR_US)).collect())
}

fn insert() -> Numbers {
    let timer = empty();
    for delay in delays(HOUR_US) {
        black_box(add(&timer, delay));
    }
    timer
}

fn cancel((timer, handles): (Numbers, Vec<Handle>)) -> Numbers {
    for handle in handles {
        assert!(timer.cancel(handle).is_some());
    }
    timer
}

fn cancel_many((timer, handles): (Numbers, Vec<Handle>)) -> Numbers {
    for handles in handles.chunks(AT_A_TIME) {
        assert!(timer.cancel_many(handles).iter().all(Option::is_some));
    }
    timer
}

fn reset((timer, moves): (Numbers, Vec<(Handle, When)>)) -> Numbers {
    for (handle, delay) in moves {
        assert!(timer.reschedule(handle, delay).expect("in range"), "pending");
    }
    timer
}

fn due_within_a_minute() -> Numbers {
    let timer = empty();
    for delay in delays(MINUTE_MS * 1000) {
        add(&timer, delay);
    }
    timer
}

fn claim(timer: &Numbers, released: Released) {
    for ticket in released.tickets {
        drop(black_box(timer.claim(ticket).expect("nothing was cancelled")));
    }
}

fn fire(timer: Numbers) -> Numbers {
    for now_ms in 1..=MINUTE_MS {
        timer.clock().set_us(now_ms * 1000);
        timer.advance(&mut |released| claim(&timer, released));
    }
    assert!(timer.is_empty());
    timer
}

fn rolling() -> Numbers {
    let timer = empty();
    let mut live = VecDeque::with_capacity(ROLLING_LAG + 1);
    for number in 0..COUNT {
        live.push_back(add(&timer, ROLLING_DELAY));
        if live.len() > ROLLING_LAG
            && let Some(handle) = live.pop_front()
            && number % 100 != 0
        {
            assert!(timer.cancel(handle).is_some());
        }
        if number % ROLLING_PER_MS == 0 {
            timer.clock().set_us(number / ROLLING_PER_MS * 1000);
            timer.advance(&mut |released| claim(&timer, released));
        }
    }
    timer
}

fn works(c: &mut Criterion) {
    let each = BatchSize::PerIteration;
    c.bench_function("insert", |b| b.iter_with_large_drop(insert));
    c.bench_function("cancel, one by one", |b| b.iter_batched(filled, cancel, each));
    c.bench_function("cancel, 64 at a time", |b| b.iter_batched(filled, cancel_many, each));
    c.bench_function("fire all, claimed", |b| b.iter_batched(due_within_a_minute, fire, each));
    c.bench_function("reset, one by one", |b| b.iter_batched(moves, reset, each));
    c.bench_function("rolling time-outs", |b| b.iter_with_large_drop(rolling));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = works
}
criterion_main!(benches);
