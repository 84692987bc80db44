//! Many time-outs at once: added in one call, moved, cancelled in one call.
//!
//! Run it with `cargo run --example batch`.

use std::time::Duration;

use tickwheel::{Clock, Config, Error, Released, Timer};

const CONNECTIONS: u32 = 10_000;

fn main() -> Result<(), Error> {
    // A manual clock, so that the example needs no time.
    let timer = Timer::new(&Config::default(), Clock::manual(0))?;

    let idle = Duration::from_secs(30);
    let timeouts = timer.add_many((0..CONNECTIONS).map(|connection| (idle, connection)))?;

    // After ten seconds every second connection has sent something: its time-out starts again.
    timer.clock().set_us(10_000_000);
    for timeout in timeouts.iter().step_by(2) {
        assert!(timer.reschedule(*timeout, idle)?, "it is pending");
    }

    timer.clock().set_us(30_000_000);
    let mut expired = Vec::new();
    timer.advance(&mut |released: Released| expired.extend(released.tickets));
    let expired: Vec<u32> = expired.into_iter().filter_map(|ticket| Some(timer.claim(ticket)?.task)).collect();
    println!("{} connections were idle for 30 s", expired.len());
    assert!(expired.iter().all(|connection| connection % 2 == 1));

    // The server closes: all that is left is cancelled.
    let cancelled = timer.cancel_many(&timeouts).into_iter().flatten().count();
    println!("{cancelled} time-outs were cancelled, {} are pending", timer.len());
    assert_eq!((expired.len() + cancelled, timer.len()), (CONNECTIONS as usize, 0));
    Ok(())
}
