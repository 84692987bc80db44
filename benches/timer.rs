//! What a million timers cost: insert, cancel, fire, on a manual clock, locked per operation.
//!
//! `cargo bench`. Each figure is for a million operations: microseconds per million are nanoseconds per operation.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tickwheel::{Clock, Config, Handle, Released, Timer, When};

const COUNT: u64 = 1_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// Delays without a pattern, from the fractional parts of multiples of the golden ratio.
fn delays_us(spread_us: u64) -> impl Iterator<Item = u64> {
    (0..COUNT).map(move |i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) % spread_us)
}

fn empty() -> Timer<Box<u64>> {
    Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good")
}

fn filled(spread_us: u64) -> (Timer<Box<u64>>, Vec<Handle>) {
    let timer = empty();
    let add = |delay_us| timer.add(When::AfterUs(delay_us), Box::new(delay_us), 0).expect("in range");
    let handles = delays_us(spread_us).map(add).collect();
    (timer, handles)
}

fn shuffled(handles: &[Handle]) -> Vec<Handle> {
    let mut keyed: Vec<_> = handles.iter().zip(delays_us(u64::MAX >> 11)).collect();
    keyed.sort_by_key(|(_, key)| *key);
    keyed.into_iter().map(|(handle, _)| *handle).collect()
}

fn insert(c: &mut Criterion) {
    c.bench_function("insert 1M over an hour", |b| {
        b.iter_batched(
            empty,
            |timer| {
                for delay_us in delays_us(HOUR_US) {
                    black_box(timer.add(When::AfterUs(delay_us), Box::new(delay_us), 0).expect("in range"));
                }
                timer
            },
            BatchSize::PerIteration,
        );
    });
}

fn cancel(c: &mut Criterion) {
    let setup = || {
        let (timer, handles) = filled(HOUR_US);
        (timer, shuffled(&handles))
    };
    c.bench_function("cancel 1M in random order", |b| {
        b.iter_batched(
            setup,
            |(timer, handles)| {
                for handle in handles {
                    assert!(timer.cancel(handle).is_some());
                }
                assert!(timer.is_empty());
                timer
            },
            BatchSize::PerIteration,
        );
    });
}

fn fire(c: &mut Criterion) {
    c.bench_function("fire 1M within 60 s, a wake-up per event", |b| {
        b.iter_batched(
            || filled(60_000_000).0,
            |timer| {
                let mut last_us = 0;
                while let Some(event_us) = timer.next_event_us() {
                    timer.clock().set_us(event_us.max(last_us + 1000));
                    timer.advance(&mut |batch: Released| {
                        for handle in batch.handles {
                            let claimed = timer.claim(handle).expect("nothing was cancelled");
                            assert!(claimed.due_us >= last_us, "in order");
                            last_us = claimed.due_us;
                            timer.finish(1);
                        }
                    });
                }
                timer
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = insert, cancel, fire
}
criterion_main!(benches);
