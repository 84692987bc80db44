//! The memory of a timer, in bytes for each task that was added: while all are pending, and after all were cancelled in
//! random order. The keys are not counted, but the memory behind a key is, where the key is the timer itself (tokio's boxed
//! `Sleep`).
//!
//! glibc's allocator says how much is allocated, with its headers. Memory that the process keeps unused is not counted.

use crate::numbers::{HOUR_MS, delays_ms, shuffle};
use crate::side::Side;

pub fn at_peak<S: Side>(count: usize) -> f64 {
    held::<S>(count).0
}

pub fn after_all_have_gone<S: Side>(count: usize) -> f64 {
    held::<S>(count).1
}

fn held<S: Side>(count: usize) -> (f64, f64) {
    let delays_ms = delays_ms(count, HOUR_MS);
    let mut keys = Vec::with_capacity(count);
    let before = allocated();
    let mut side = S::new();
    keys.extend(delays_ms.iter().zip(0..).map(|(delay_ms, payload)| side.insert(*delay_ms, payload)));
    assert_eq!(side.len(), count);
    let peak = allocated();
    shuffle(&mut keys);
    for key in keys.drain(..) {
        assert!(side.cancel(key));
    }
    assert_eq!(side.len(), 0);
    let after = allocated();
    let each = |bytes: usize| bytes.saturating_sub(before) as f64 / count as f64;
    (each(peak), each(after))
}

fn allocated() -> usize {
    // SAFETY: the call takes nothing and returns plain numbers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
