//! Time-outs of requests: nearly all are cancelled by the reply, the few that come due give their request up.
//!
//! Run it with `cargo run --example timeouts`.

use std::collections::HashMap;
use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tickwheel::{Config, SystemTimer};

const REQUESTS: u32 = 10_000;
const TIMEOUT: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let timer = SystemTimer::new("requests", &Config::default())?;
    let (send, requests) = mpsc::channel::<u32>();
    let (reply, replies) = mpsc::channel();
    let server = thread::Builder::new().name("server".to_owned()).spawn(move || {
        for request in requests.iter().filter(|request| request % 2_500 != 42) {
            reply.send(request).expect("the client reads until the server is gone");
        }
    })?;

    let (give_up, given_up) = mpsc::channel();
    let mut waiting = HashMap::new();
    for request in 0..REQUESTS {
        let give_up = give_up.clone();
        let timeout = timer.after(TIMEOUT, move || give_up.send(request).expect("someone reads until the last"))?;
        waiting.insert(request, timeout);
        send.send(request).expect("the server reads until the client is done");
    }
    drop((send, give_up)); // what is left of `give_up` is in the time-outs themselves

    // `cancel` says for certain whether the reply came first, so no request is both answered and given up.
    let in_time = replies.iter().filter(|request| waiting.remove(request).is_some_and(|timeout| timeout.cancel()));
    println!("answered in time: {} of {REQUESTS}", in_time.count());
    println!("waiting for a time-out: {}", timer.len());

    // Ends once the last time-out has run: a cancelled one lets go of its closure at once.
    let given_up: Vec<u32> = given_up.iter().collect();
    println!("given up, in order: {given_up:?}");
    server.join().expect("the server does not panic");

    let stats = timer.stats();
    println!("added {}, cancelled {}, expired {}", stats.added, stats.cancelled, stats.expired);
    println!("pending at the end: {}", timer.shutdown(None).len());
    Ok(())
}
