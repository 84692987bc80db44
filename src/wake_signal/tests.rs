//! Sleeps by an alarm.

use std::time::Duration;

use super::*;

#[test]
fn a_sleep_ends_at_its_time_and_a_wake_before_it_is_not_lost() {
    let clock = Clock::boottime_us(0).expect("Linux has it");
    let (signal, mutex) = (WakeSignal::on(&clock).expect("there are descriptors"), Mutex::new(()));
    let until_us = clock.now_us() + 2_000;
    while clock.now_us() < until_us {
        drop(signal.sleep((&mutex, mutex.lock()), &clock, until_us)); // a signal may end it early
    }
    signal.wake();
    drop(signal.sleep((&mutex, mutex.lock()), &clock, u64::MAX));
    std::thread::scope(|scope| {
        scope.spawn(|| drop(signal.sleep((&mutex, mutex.lock()), &clock, clock.now_us() + 3_600_000_000)));
        signal.wake();
    });
    assert!(clock.now_us() < until_us + Duration::from_secs(60).as_micros() as u64);
}

#[test]
fn an_instant_before_the_boot_has_passed() {
    let clock = Clock::boottime_us(1 << 50).expect("Linux has it");
    let (signal, mutex) = (WakeSignal::on(&clock).expect("there are descriptors"), Mutex::new(()));
    drop(signal.sleep((&mutex, mutex.lock()), &clock, 0));
}
