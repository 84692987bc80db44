//! Requests that wait for an event, but not for ever: a write is answered once three replicas have it, or after 50 ms.
//!
//! Run it with `cargo run --example purgatory`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Error, Operation, SystemTimer};

const REPLICAS: u32 = 3;

struct Write {
    partition: &'static str,
    copies: AtomicU32,
    answer: Sender<String>,
}

impl DelayedOperation for Write {
    type Key = &'static str;

    fn try_complete(this: &Operation<Self>) -> bool {
        this.copies.load(Ordering::Acquire) >= REPLICAS && this.force_complete()
    }

    fn on_complete(&self) {
        let copies = self.copies.load(Ordering::Acquire);
        let answer = if copies >= REPLICAS { "stored".to_owned() } else { format!("only {copies} copies in time") };
        self.answer.send(format!("{}: {answer}", self.partition)).expect("the client waits for each answer");
    }
}

fn main() -> Result<(), Error> {
    let timer = Arc::new(SystemTimer::new("writes", &Config::default())?);
    let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
    let (answer, answers) = channel();
    let write = |partition| {
        let write = Write { partition, copies: AtomicU32::new(0), answer: answer.clone() };
        Operation::new(Duration::from_millis(50), write)
    };
    let (orders, users) = (write("orders"), write("users"));
    for waiting in [&orders, &users] {
        purgatory.try_complete_else_watch(waiting, [waiting.partition])?;
    }
    println!("{} writes wait, {} with a deadline", purgatory.watched(), purgatory.num_delayed());

    // Each replica is a thread: it stores its copy, and checks the key of the partition. The replicas of `users` are slow:
    // one of them never answers.
    thread::scope(|scope| {
        for (write, replicas) in [(&orders, REPLICAS), (&users, REPLICAS - 1)] {
            for _ in 0..replicas {
                let purgatory = &purgatory;
                scope.spawn(move || {
                    write.copies.fetch_add(1, Ordering::AcqRel);
                    purgatory.check_and_complete(&write.partition);
                });
            }
        }
    });

    let answers: Vec<String> = answers.iter().take(2).collect();
    println!("{answers:#?}");
    assert_eq!(answers, ["orders: stored", "users: only 2 copies in time"]);
    assert_eq!((purgatory.watched(), purgatory.num_delayed()), (0, 0)); // nothing is left behind
    timer.shutdown(None);
    Ok(())
}
