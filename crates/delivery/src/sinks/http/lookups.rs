//! Looks up the receiver's name, in threads that run from the start. A system that gives no more threads later
//! therefore fails no request. A lookup in progress can't be stopped: its thread ends once the system has answered.
//!
//! One answer is for all that wait when it comes. With an answer for each, slow lookups would fall behind the connections
//! that open: each answer would come to a connection that was given up, and nothing would be sent.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll};
use std::thread::Builder;
use std::vec::IntoIter;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::base::sync::Mutex;
use crate::sinks::inside::Allowed;

/// How many threads wait for the system to look up a name. A webhook has one name. If a lookup hangs, another one may not.
const THREADS: usize = 2;

type Found = io::Result<IntoIter<SocketAddr>>;

#[derive(Debug)]
struct Question {
    name: Name,
    answer: oneshot::Sender<Found>,
}

/// Asks the threads, which end with the last clone of this.
#[derive(Clone, Debug)]
pub(super) struct Lookups {
    waiting: Arc<Mutex<Vec<Question>>>,
    /// Wakes a thread: one of them takes all that waits.
    asked: mpsc::Sender<()>,
    /// For named destinations: the addresses inside that these may have.
    guard: Option<Guard>,
}

/// The addresses inside that named destinations may have; none before they are set.
pub(super) type Guard = Arc<OnceLock<Allowed>>;

impl Lookups {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start() -> io::Result<Self> {
        Self::with(|name| (name, 0).to_socket_addrs().map(Iterator::collect))
    }

    fn with(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Clone + Send + 'static) -> io::Result<Self> {
        let (asked, questions) = mpsc::channel();
        let questions = Arc::new(Mutex::new(questions)); // an idle thread holds it, and the others wait for that one
        let waiting = Arc::default();
        for _ in 0..THREADS {
            let (questions, waiting, look_up) = (Arc::clone(&questions), Arc::clone(&waiting), look_up.clone());
            let next = move || questions.lock().recv();
            let answer_all = move || {
                while next().is_ok() {
                    answer_waiting(&waiting, &look_up);
                }
            };
            Builder::new().name("lookup-deliver".to_owned()).spawn(answer_all)?;
        }
        Ok(Self { waiting, asked, guard: None })
    }

    /// The same threads, for named destinations.
    pub(super) fn guarded(&self, guard: Guard) -> Self {
        Self { guard: Some(guard), ..self.clone() }
    }
}

fn answer_waiting(waiting: &Mutex<Vec<Question>>, look_up: &impl Fn(&str) -> io::Result<Vec<SocketAddr>>) {
    let take = || std::mem::take(&mut *waiting.lock());
    let mut asked = take();
    loop {
        let Some(first) = asked.first() else { return };
        let name = first.name.clone();
        let found = look_up(name.as_str());
        asked.append(&mut take());
        let (same, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|question| question.name == name);
        for question in same {
            let copy = found.as_ref().map(|addresses| addresses.clone().into_iter());
            // The request may have been given up.
            let _ = question.answer.send(copy.map_err(|error| io::Error::new(error.kind(), error.to_string())));
        }
        asked = others;
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
        self.waiting.lock().push(Question { name, answer });
        let is_asked = self.asked.send(()).is_ok();
        let guard = self.guard.clone();
        Box::pin(async move {
            let ended = || io::Error::other("the threads for lookups have ended");
            let found = if is_asked { answered.await.unwrap_or_else(|_| Err(ended())) } else { Err(ended()) }?;
            match guard {
                Some(guard) => guard.get().cloned().unwrap_or_default().filter(found),
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

    /// Lookups that begin when the test hears of them, and end when it lets them.
    struct World {
        lookups: Lookups,
        begun: mpsc::Receiver<()>,
        end: mpsc::Sender<io::Result<Vec<SocketAddr>>>,
    }

    impl World {
        fn new() -> Self {
            let (begins, begun) = mpsc::channel();
            let (end, ends) = mpsc::channel();
            let ends = Arc::new(Mutex::new(ends));
            let look_up = move |_: &str| {
                begins.send(()).unwrap();
                ends.lock().recv_timeout(LONG).unwrap()
            };
            Self { lookups: Lookups::with(look_up).unwrap(), begun, end }
        }

        fn ask(&mut self) -> <Lookups as Service<Name>>::Future {
            self.lookups.call("receiver.test".parse().unwrap())
        }

        fn begins(&self) {
            self.begun.recv_timeout(LONG).expect("a lookup begins");
        }
    }

    fn answered(asked: impl Future<Output = Found>) -> io::Result<Vec<SocketAddr>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let found = runtime.block_on(async { tokio::time::timeout(LONG, asked).await.expect("it is answered") });
        found.map(Iterator::collect)
    }

    #[test]
    fn one_answer_is_for_all_that_wait_when_it_comes__d6() {
        let here: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let mut world = World::new();
        let first: Vec<_> = (0..THREADS).map(|_| (world.ask(), world.begins()).0).collect();
        let later: Vec<_> = (0..64).map(|_| world.ask()).collect();
        world.end.send(Ok(vec![here])).unwrap();
        for asked in later {
            assert_eq!(answered(asked).unwrap(), [here]);
        }
        world.end.send(Err(io::Error::other("no such name"))).unwrap();
        let mut ends: Vec<_> = first.into_iter().map(|asked| answered(asked).is_ok()).collect();
        ends.sort_unstable();
        assert_eq!(ends, [false, true]);
        assert!(world.begun.try_recv().is_err(), "nothing else was looked up");
    }

    #[test]
    fn what_was_given_up_is_not_looked_up__d6() {
        let mut world = World::new();
        let first: Vec<_> = (0..THREADS).map(|_| (world.ask(), world.begins()).0).collect();
        drop(world.ask());
        for _ in 0..THREADS {
            world.end.send(Ok(Vec::new())).unwrap();
        }
        assert!(first.into_iter().all(|asked| answered(asked).is_ok()));
        let last = world.ask();
        world.begins();
        world.end.send(Ok(Vec::new())).unwrap();
        assert!(answered(last).is_ok());
        assert!(world.begun.try_recv().is_err(), "nothing else was looked up");
    }
}
