//! What tests of a running engine share.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::dispatcher::Event;
use super::engine::Settings;
use super::error::DeliveryError;
use super::items::Item;
use super::message::{Body, Incoming, Message};
use super::retry::Retry;
use super::sinks::OpenSink;
use super::store::Letter;
use super::store::owner::Ownership;
use super::threads::{Observer, Running};
use crate::sync::PlainMutex;

/// Longer than anything takes that a test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn put(key: Option<&str>, id: &str, due_ms: i64) -> Item {
    let body = Body::new(key, id, b"{\"x\":1}", true);
    Item::Put(Incoming::of(Message { body, due_ms, delay_ms: None }))
}

/// Messages without a key, all overdue, in the order of their ids.
pub(crate) fn many(count: usize) -> Vec<Item> {
    (0..count).map(|id| put(None, &id.to_string(), 1 + id as i64)).collect()
}

/// Retries soon.
pub(crate) fn settings() -> Settings {
    Settings {
        retry: Retry { max_attempts: 3, first_ms: 10, longest_ms: 50 },
        sink_timeout_ms: 30_000,
        ..Settings::default()
    }
}

/// What the program was told.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<PlainMutex<(Vec<Event>, Vec<Letter>)>>);

impl Observer for Told {
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
        self.0.lock().1.extend_from_slice(letters);
        Ok(())
    }

    fn events(&self, mut events: Vec<Event>) {
        self.0.lock().0.append(&mut events);
    }
}

impl Told {
    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.lock().0.clone()
    }

    #[cfg(feature = "delivery-http")]
    pub(crate) fn letters(&self) -> Vec<Letter> {
        self.0.lock().1.clone()
    }

    /// The reasons for which the destination went down, and `up` for each time that it came back.
    pub(crate) fn outages(&self) -> Vec<String> {
        let told = |event| match event {
            Event::Down { reason } => Some(reason),
            Event::Up { .. } => Some("up".to_owned()),
            _ => None,
        };
        self.events().into_iter().filter_map(told).collect()
    }
}

/// An engine that delivers from a store in a folder of its own.
pub(crate) struct Delivering {
    pub(crate) running: Running,
    pub(crate) told: Told,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

impl Delivering {
    pub(crate) fn start(settings: Settings, open: OpenSink) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), settings, open)
    }

    pub(crate) fn with_threads(threads: usize, settings: Settings, open: OpenSink) -> Self {
        Self::open(Arc::new(tempfile::tempdir().unwrap()), threads, settings, open)
    }

    pub(crate) fn on(folder: Arc<tempfile::TempDir>, settings: Settings, open: OpenSink) -> Self {
        Self::open(folder, 4, settings, open)
    }

    fn open(folder: Arc<tempfile::TempDir>, threads: usize, settings: Settings, open: OpenSink) -> Self {
        let told = Told::default();
        let ownership = Ownership::take(&folder.path().join("store.db"), &mut |_| (), &mut || false).unwrap();
        let running = Running::open(ownership, settings, open, threads, Box::new(told.clone())).unwrap();
        running.start(running.engine().wall_clock());
        Self { running, told, folder }
    }

    pub(crate) fn submit(&self, items: Vec<Item>) {
        self.running.submit(items).unwrap().wait(Some(LONG)).unwrap().unwrap();
    }
}

/// Starts a thread of the test.
pub(crate) fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().name("test".to_owned()).spawn(body).unwrap()
}

/// Waits until this holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
