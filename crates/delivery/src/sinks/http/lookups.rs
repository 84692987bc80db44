//! Looks up the receiver's name, in threads that run from the start. A system that gives no more threads later
//! therefore fails no request. A lookup in progress can't be stopped: its thread ends once the system has answered.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread::Builder;
use std::vec::IntoIter;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::base::sync::Mutex;

/// How many threads wait for the system to look up a name. A webhook has one name.
const THREADS: usize = 2;

type Found = io::Result<IntoIter<SocketAddr>>;

/// Asks the threads, which end with the last clone of this.
#[derive(Clone, Debug)]
pub(super) struct Lookups(mpsc::Sender<(Name, oneshot::Sender<Found>)>);

impl Lookups {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start() -> io::Result<Self> {
        let (asked, questions) = mpsc::channel::<(Name, oneshot::Sender<Found>)>();
        let questions = Arc::new(Mutex::new(questions)); // an idle thread holds it, and the others wait for that one
        for _ in 0..THREADS {
            let questions = Arc::clone(&questions);
            let next = move || questions.lock().recv();
            let answer_all = move || {
                while let Ok((name, answer)) = next() {
                    let _ = answer.send((name.as_str(), 0).to_socket_addrs()); // the request may have been given up
                }
            };
            Builder::new().name("lookup-deliver".to_owned()).spawn(answer_all)?;
        }
        Ok(Self(asked))
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
        let is_asked = self.0.send((name, answer)).is_ok();
        Box::pin(async move {
            let ended = || io::Error::other("the threads for lookups have ended");
            if is_asked { answered.await.unwrap_or_else(|_| Err(ended())) } else { Err(ended()) }
        })
    }
}
