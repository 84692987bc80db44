//! `SystemTimer` and its real threads. The tests wait for events, never for a length of time.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tickwheel::{Config, Error, SystemTimer};

use crate::support::Random;

const HOUR: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(60);

fn timer(name: &str) -> SystemTimer {
    SystemTimer::new(name, &Config::default()).unwrap()
}

#[test]
fn tasks_run_in_order_and_never_early__t5_t6() {
    let timer = timer("order");
    let (sender, receiver) = mpsc::channel();
    for delay_ms in [30_u64, 10, 20, 10] {
        let sender = sender.clone();
        let due = Instant::now() + Duration::from_millis(delay_ms);
        timer
            .after(Duration::from_millis(delay_ms), move || sender.send((delay_ms, Instant::now() >= due)).unwrap())
            .unwrap();
    }
    let ran: Vec<_> = (0..4).map(|_| receiver.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(ran, [(10, true), (10, true), (20, true), (30, true)]);
}

#[test]
fn an_add_that_becomes_the_earliest_wakes_the_reaper__t4() {
    let timer = timer("wake");
    timer.after(HOUR, || ()).unwrap();
    for _ in 0..2000 {
        let (sender, receiver) = mpsc::channel();
        timer.after(Duration::ZERO, move || sender.send(()).unwrap()).unwrap();
        receiver.recv_timeout(PATIENCE).expect("a lost wake-up");
    }
}

/// Four threads cancel half of the tasks while the rest fire: each task ran or was cancelled, and never both.
#[test]
fn each_of_a_million_tasks_runs_or_is_cancelled__t7_t9() {
    const COUNT: usize = 1_000_000;
    let timer = Arc::new(timer("exact"));
    let fates: Arc<Vec<AtomicU8>> = Arc::new((0..COUNT).map(|_| AtomicU8::new(0)).collect());
    let left = Arc::new(AtomicUsize::new(COUNT));
    let seed = 42;
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (timer, fates, left) = (Arc::clone(&timer), Arc::clone(&fates), Arc::clone(&left));
            thread::Builder::new().name(format!("adder-{worker}")).spawn(move || {
                let mut random = Random::new(seed + worker as u64);
                let mut cancellable = Vec::new();
                for id in (worker..COUNT).step_by(4) {
                    let (fates_there, left_there) = (Arc::clone(&fates), Arc::clone(&left));
                    let delay = Duration::from_micros(random.below(1_000_000));
                    let run = move || {
                        fates_there[id].fetch_add(1, Ordering::Relaxed);
                        left_there.fetch_sub(1, Ordering::Release);
                    };
                    let task = timer.after(delay, run).unwrap();
                    if random.below(2) == 0 {
                        cancellable.push((id, task));
                    }
                    if random.below(4) == 0 && !cancellable.is_empty() {
                        let index = random.below(cancellable.len() as u64) as usize;
                        let (id, task) = cancellable.swap_remove(index);
                        if task.cancel() {
                            fates[id].fetch_add(16, Ordering::Relaxed);
                            left.fetch_sub(1, Ordering::Release);
                        }
                    }
                }
                for (id, task) in cancellable {
                    if task.cancel() {
                        fates[id].fetch_add(16, Ordering::Relaxed);
                        left.fetch_sub(1, Ordering::Release);
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.unwrap().join().unwrap();
    }
    let unfinished = {
        let until = Instant::now() + PATIENCE;
        while left.load(Ordering::Acquire) > 0 && Instant::now() < until {
            thread::yield_now();
        }
        timer.shutdown(Some(PATIENCE))
    };
    assert_eq!(unfinished.len(), 0);
    let fates: Vec<_> = fates.iter().map(|fate| fate.load(Ordering::Relaxed)).collect();
    let count = |wanted: u32| fates.iter().filter(|fate| u32::from(**fate) == wanted).count();
    let (ran, cancelled) = (count(1), count(16));
    assert_eq!(ran + cancelled, COUNT, "every fate is decided once");
    assert!(ran > 0 && cancelled > 0, "{ran} ran, {cancelled} cancelled");
}

#[test]
fn a_cancel_at_the_moment_of_firing_is_exact__t9() {
    let timer = timer("race");
    let mut cancelled = 0;
    for round in 0..10_000_u64 {
        let (sender, receiver) = mpsc::channel();
        let delay = Duration::from_micros(200);
        let started = Instant::now();
        let task = timer.after(delay, move || sender.send(()).unwrap()).unwrap();
        while started.elapsed() < delay + Duration::from_micros(round % 60) {
            std::hint::spin_loop();
        }
        let is_cancelled = task.cancel();
        // If it was cancelled, the closure and its sender are dropped. Otherwise it runs.
        assert_eq!(receiver.recv_timeout(PATIENCE).is_err(), is_cancelled, "round {round}");
        cancelled += u32::from(is_cancelled);
    }
    println!("{cancelled} of 10000 were cancelled in time");
}

#[test]
fn shutdown_returns_what_is_pending_in_order__t11() {
    let timer = timer("end");
    let (sender, receiver) = mpsc::channel();
    for hours in [3, 1, 2] {
        let sender = sender.clone();
        timer.after(HOUR * hours, move || sender.send(hours).unwrap()).unwrap();
    }
    for pending in timer.shutdown(None) {
        (pending.task)();
    }
    drop(sender);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(*timer.after(HOUR, || ()).unwrap_err().error(), Error::Closed);
    assert!(timer.shutdown(None).is_empty(), "twice is fine");
}

#[test]
fn shutdown_waits_no_longer_than_its_timeout__t11() {
    let timer = timer("slow");
    let (go, go_receiver) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    timer
        .after(Duration::ZERO, move || {
            sender.send(()).unwrap();
            let _ = go_receiver.recv();
        })
        .unwrap();
    timer.after(Duration::ZERO, || unreachable!("it never started")).unwrap();
    receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(timer.shutdown(Some(Duration::ZERO)).len(), 1);
    go.send(()).unwrap();
}

#[test]
fn shutdown_inside_a_callback_does_not_join_itself__t11() {
    let timer = Arc::new(timer("inside"));
    timer.after(HOUR, || ()).unwrap();
    let (sender, receiver) = mpsc::channel();
    let inner = Arc::clone(&timer);
    timer.after(Duration::ZERO, move || sender.send(inner.shutdown(None).len()).unwrap()).unwrap();
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1));
}

#[test]
fn a_callback_that_panics_loses_no_other_task__t10() {
    let timer = timer("panic");
    let (sender, receiver) = mpsc::channel();
    // `resume_unwind` prints nothing, unlike `panic!`.
    timer.after(Duration::ZERO, || std::panic::resume_unwind(Box::new("broken"))).unwrap();
    timer.after(Duration::from_millis(1), move || sender.send(()).unwrap()).unwrap();
    receiver.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_dropped_timer_runs_until_it_is_empty__t11() {
    let (sender, receiver) = mpsc::channel();
    {
        let timer = timer("orphan");
        timer.after(Duration::from_millis(20), move || sender.send(()).unwrap()).unwrap();
    }
    receiver.recv_timeout(PATIENCE).unwrap();
    assert!(receiver.recv_timeout(PATIENCE).is_err(), "its closure is gone");
}

#[test]
fn a_name_with_a_nul_is_a_name__t13() {
    let timer = timer("a\0b");
    let (sender, receiver) = mpsc::channel();
    timer.after(Duration::ZERO, move || sender.send(thread::current().name().map(str::to_owned)).unwrap()).unwrap();
    assert_eq!(receiver.recv_timeout(PATIENCE).unwrap().as_deref(), Some("executor-a b"));
}

#[cfg(target_os = "linux")]
#[test]
fn the_name_of_a_thread_shows_its_timer__t8() {
    for (name, shown) in
        [("orders-eu", "exec-orders-eu"), ("purgatory-produce", "exec-purgatory-"), ("日程表の", "exec-日程表")]
    {
        let timer = timer(name);
        let (sender, receiver) = mpsc::channel();
        let look = move || {
            let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            sender.send((comm.trim_end().to_owned(), thread::current().name().map(str::to_owned))).unwrap();
        };
        timer.after(Duration::ZERO, look).unwrap();
        let (comm, full) = receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!((comm.as_str(), full), (shown, Some(format!("executor-{name}"))));
    }
}
