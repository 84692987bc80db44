//! Looks up the receivers' names, in threads. Two run from the start, so a system that gives no more threads later fails
//! no request. A lookup in progress can't be stopped: its thread is free once the system has answered.
//!
//! - A name has one lookup at a time, and one answer is for all that wait when it comes. So no destination has more than
//!   one thread, and slow lookups do not fall behind the connections that open.
//! - If all threads are busy, there is another one for the next name, up to [`MOST_THREADS`]. It ends when no name waits.
//! - Names take turns. A name whose last lookup failed comes after the others. Such names have at most half of the threads,
//!   so thousands that hang leave the other half to names that answer.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll};
use std::thread::Builder;
use std::vec::IntoIter;

use hyper_util::client::legacy::connect::dns::Name;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::oneshot;
use tower_service::Service;

use super::proxy::Proxy;
use crate::base::sync::Mutex;
use crate::sinks::inside::Allowed;

/// How many threads there always are.
const THREADS: usize = 2;
const MOST_THREADS: usize = 64;
/// How many names are remembered as failed.
const MOST_FAILED: usize = 10_000;

type Found = io::Result<IntoIter<SocketAddr>>;
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// What the settings say, before the first send.
pub(super) type Given = Arc<OnceLock<Known>>;

#[derive(Debug)]
pub(super) struct Known {
    pub(super) allowed: Allowed,
    pub(super) final_statuses: Vec<u16>,
    pub(super) proxy: Option<Proxy>,
}

/// Asks the threads, which end with the last clone of this.
#[derive(Clone)]
pub(super) struct Lookups {
    work: Arc<Work>,
    /// Wakes a thread.
    asked: mpsc::Sender<()>,
    /// For named destinations: the addresses inside that these may have.
    guard: Option<Given>,
}

struct Work {
    turns: Mutex<Turns>,
    look_up: Box<LookUp>,
}

#[derive(Default)]
struct Turns {
    /// The requests that wait for each name.
    waiting: FxHashMap<Name, Vec<oneshot::Sender<Found>>>,
    /// Names without a lookup in progress. Each is once in one of these.
    next: VecDeque<Name>,
    next_failed: VecDeque<Name>,
    failed: FxHashSet<Name>,
    threads: usize,
    in_progress: usize,
    failed_in_progress: usize,
}

impl Turns {
    /// Returns whether the name needs a thread, and whether that is a new one.
    fn ask(&mut self, name: Name, answer: oneshot::Sender<Found>) -> (bool, bool) {
        let waiting = self.waiting.entry(name.clone()).or_default();
        waiting.push(answer);
        if waiting.len() > 1 {
            return (false, false);
        }
        let next = if self.failed.contains(&name) { &mut self.next_failed } else { &mut self.next };
        next.push_back(name);
        let failed = self.next_failed.len().min(MOST_THREADS / 2 - self.failed_in_progress);
        let is_new = self.in_progress + self.next.len() + failed > self.threads && self.threads < MOST_THREADS;
        self.threads += usize::from(is_new);
        (true, is_new)
    }

    /// The name whose turn it is, and whether it failed before.
    fn take(&mut self) -> Option<(Name, bool)> {
        loop {
            let (name, has_failed) = match self.next.pop_front() {
                Some(name) => (name, false),
                None if self.failed_in_progress < MOST_THREADS / 2 => (self.next_failed.pop_front()?, true),
                None => return None,
            };
            if self.waiting[&name].iter().all(oneshot::Sender::is_closed) {
                self.waiting.remove(&name); // all were given up
                continue;
            }
            self.in_progress += 1;
            self.failed_in_progress += usize::from(has_failed);
            return Some((name, has_failed));
        }
    }

    /// Returns the requests that waited.
    fn end(&mut self, name: Name, had_failed: bool, has_failed: bool) -> Vec<oneshot::Sender<Found>> {
        self.in_progress -= 1;
        self.failed_in_progress -= usize::from(had_failed);
        let waiting = self.waiting.remove(&name).unwrap_or_default();
        if !has_failed {
            self.failed.remove(&name);
        } else if self.failed.len() < MOST_FAILED {
            self.failed.insert(name);
        }
        waiting
    }
}

impl Work {
    /// Looks up names until none waits. If the thread `is_further`, it ends then.
    fn answer_all(&self, is_further: bool) {
        loop {
            let mut turns = self.turns.lock();
            let Some((name, had_failed)) = turns.take() else {
                turns.threads -= usize::from(is_further); // under the lock of the look, so that no name counts on it
                return;
            };
            drop(turns);
            let found = (self.look_up)(name.as_str());
            let waiting = self.turns.lock().end(name, had_failed, found.is_err());
            for answer in waiting {
                let copy = found.as_ref().map(|addresses| addresses.clone().into_iter());
                // The request may have been given up.
                let _ = answer.send(copy.map_err(|error| io::Error::new(error.kind(), error.to_string())));
            }
        }
    }
}

impl Lookups {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start() -> io::Result<Self> {
        Self::with(|name| (name, 0).to_socket_addrs().map(Iterator::collect))
    }

    pub(super) fn with(
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (asked, questions) = mpsc::channel();
        let questions = Arc::new(Mutex::new(questions)); // an idle thread holds it, and the others wait for that one
        let turns = Mutex::new(Turns { threads: THREADS, ..Turns::default() });
        let work = Arc::new(Work { turns, look_up: Box::new(look_up) });
        for _ in 0..THREADS {
            let (questions, work) = (Arc::clone(&questions), work.clone());
            let next = move || questions.lock().recv();
            thread(move || {
                while next().is_ok() {
                    work.answer_all(false);
                }
            })?;
        }
        Ok(Self { work, asked, guard: None })
    }

    /// The same threads, for named destinations.
    pub(super) fn guarded(&self, guard: Given) -> Self {
        Self { guard: Some(guard), ..self.clone() }
    }

    fn ask(&self, name: Name, answer: oneshot::Sender<Found>) {
        let (is_needed, is_new) = self.work.turns.lock().ask(name, answer);
        let work = self.work.clone();
        if is_new && thread(move || work.answer_all(true)).is_err() {
            self.work.turns.lock().threads -= 1; // the name waits for one of the others
        }
        if is_needed {
            let _ = self.asked.send(()); // the threads live as long as this
        }
    }
}

fn thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name("lookup-deliver".to_owned()).spawn(run).map(drop)
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").finish_non_exhaustive()
    }
}

impl Service<Name> for Lookups {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Found> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (answer, answered) = oneshot::channel();
        self.ask(name, answer);
        let guard = self.guard.clone();
        Box::pin(async move {
            let found = answered.await.map_err(|_| io::Error::other("the threads for lookups have ended"))??;
            match guard {
                Some(guard) => guard.get().map(|it| it.allowed.clone()).unwrap_or_default().filter(found),
                None => Ok(found),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Lookups that begin when the test hears of them. Those of `hangs` end when the test lets them.
    struct World {
        lookups: Lookups,
        begun: mpsc::Receiver<String>,
        end: mpsc::Sender<io::Result<Vec<SocketAddr>>>,
    }

    impl World {
        fn new(hangs: &'static str) -> Self {
            let (begins, begun) = mpsc::channel();
            let (end, ends) = mpsc::channel();
            let ends = Mutex::new(ends);
            let look_up = move |name: &str| {
                begins.send(name.to_owned()).unwrap();
                if name.starts_with(hangs) { ends.lock().recv_timeout(LONG).unwrap() } else { Ok(vec![here()]) }
            };
            Self { lookups: Lookups::with(look_up).unwrap(), begun, end }
        }

        fn ask(&mut self, name: &str) -> <Lookups as Service<Name>>::Future {
            self.lookups.call(name.parse().unwrap())
        }

        fn begins(&self) -> String {
            self.begun.recv_timeout(LONG).expect("a lookup begins")
        }
    }

    fn here() -> SocketAddr {
        "127.0.0.1:80".parse().unwrap()
    }

    fn answered(asked: impl Future<Output = Found>) -> io::Result<Vec<SocketAddr>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let found = runtime.block_on(async { tokio::time::timeout(LONG, asked).await.expect("it is answered") });
        found.map(Iterator::collect)
    }

    #[test]
    fn one_answer_is_for_all_that_wait_when_it_comes__d6() {
        let mut world = World::new("receiver");
        let all: Vec<_> = (0..64).map(|_| world.ask("receiver.test")).collect();
        world.begins();
        world.end.send(Ok(vec![here()])).unwrap();
        for asked in all {
            assert_eq!(answered(asked).unwrap(), [here()]);
        }
        assert!(world.begun.try_recv().is_err(), "nothing else was looked up");
    }

    #[test]
    fn what_was_given_up_is_not_looked_up__d6() {
        let mut world = World::new("hangs");
        let hanging: Vec<_> =
            (0..MOST_THREADS).map(|number| (world.ask(&format!("hangs{number}.test")), world.begins()).0).collect();
        drop(world.ask("given-up.test"));
        for _ in &hanging {
            world.end.send(Ok(Vec::new())).unwrap();
        }
        assert!(hanging.into_iter().all(|asked| answered(asked).is_ok()));
        let last = world.ask("last.test");
        assert_eq!((world.begins(), answered(last).unwrap()), ("last.test".to_owned(), vec![here()]));
        assert!(world.begun.try_recv().is_err(), "nothing else was looked up");
    }

    #[test]
    fn names_that_hang_hold_up_none_that_answers__d23() {
        let mut world = World::new("hangs");
        let hanging: Vec<_> = (0..50).map(|number| world.ask(&format!("hangs{number}.test"))).collect();
        let others: Vec<_> = (0..100).map(|number| world.ask(&format!("answers{number}.test"))).collect();
        assert!(others.into_iter().all(|asked| answered(asked).is_ok()));
        for _ in &hanging {
            world.end.send(Err(io::Error::other("no such name"))).unwrap();
        }
        assert!(hanging.into_iter().all(|asked| answered(asked).is_err()));
    }

    #[test]
    fn names_that_failed_leave_half_of_the_threads_to_the_others__d23() {
        let mut world = World::new("hangs");
        let names: Vec<String> = (0..200).map(|number| format!("hangs{number}.test")).collect();
        for _ in &names {
            world.end.send(Err(io::Error::other("no such name"))).unwrap();
        }
        for name in &names {
            assert!(answered(world.ask(name)).is_err());
        }
        let hanging: Vec<_> = names.iter().map(|name| world.ask(name)).collect();
        assert!(answered(world.ask("answers.test")).is_ok(), "they hang, and it is looked up");
        for _ in &names {
            world.end.send(Ok(vec![here()])).unwrap();
        }
        assert!(hanging.into_iter().all(|asked| answered(asked).is_ok()));
        let turns = world.lookups.work.turns.lock();
        assert!(turns.failed.is_empty() && turns.waiting.is_empty(), "they answer again");
    }
}
