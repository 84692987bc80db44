//! The queue of a worker: unbounded, many senders, one receiver.
//!
//! The receiver sleeps at once when the queue is empty. The usual channels spin for some microseconds first. That helps a
//! receiver that gets the next item soon. A worker does not: at a thousand wake-ups per second, spinning was half of its
//! thread's time.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_utils::sync::{Parker, Unparker};

use super::Mutex;

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    unparker: Unparker,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
    /// The receiver sleeps or is about to, and no sender has woken it yet.
    receiver_sleeps: bool,
}

/// There are no senders and no items any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Disconnected;

/// There is no receiver any more; returns the item.
#[derive(Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// There is no item.
#[derive(Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// None now.
    Empty,
    /// None, and there are no senders any more.
    Disconnected,
}

/// The end where items go in.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// The end where items come out.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The parker has a mutex and a condition variable of its own, so a forked child inherits no table of sleeping threads
    /// (T12).
    parker: Parker,
}

/// An empty queue.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { items: VecDeque::new(), senders: 1, has_receiver: true, receiver_sleeps: false };
    let parker = Parker::new();
    let shared = Arc::new(Shared { state: Mutex::new(state), unparker: parker.unparker().clone() });
    (Sender(Arc::clone(&shared)), Receiver { shared, parker })
}

impl<T> Sender<T> {
    /// Appends an item, and wakes the receiver.
    ///
    /// # Errors
    /// There is no receiver any more; the error gives the item back.
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        if !state.has_receiver {
            return Err(SendError(item));
        }
        state.items.push_back(item);
        let wakes = std::mem::take(&mut state.receiver_sleeps);
        drop(state);
        if wakes {
            self.0.unparker.unpark();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        let wakes = state.senders == 0 && std::mem::take(&mut state.receiver_sleeps);
        drop(state);
        if wakes {
            self.0.unparker.unpark();
        }
    }
}

impl<T> Receiver<T> {
    /// For a thread that has other work. It does not wait for the lock either (border rule 2): while a sender holds the lock,
    /// the queue counts as empty.
    ///
    /// # Errors
    /// There is no item.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let Some(mut state) = self.shared.state.try_lock() else { return Err(TryRecvError::Empty) };
        match state.items.pop_front() {
            Some(item) => Ok(item),
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Waits for the next item; an error when there are no senders and no items any more.
    ///
    /// # Errors
    /// There are no senders and no items any more.
    pub fn recv(&mut self) -> Result<T, Disconnected> {
        loop {
            let mut state = self.shared.state.lock();
            if let Some(item) = state.items.pop_front() {
                return Ok(item);
            }
            if state.senders == 0 {
                return Err(Disconnected);
            }
            state.receiver_sleeps = true;
            drop(state);
            // If a sender came in between, it has left a token, and `park` returns at once.
            self.parker.park();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.has_receiver = false;
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items); // after the lock: their destructors are foreign code
    }
}

#[cfg(all(test, not(tickwheel_loom)))]
mod tests {
    use std::thread::scope;

    use super::*;

    #[test]
    fn every_item_comes_once_and_in_the_order_of_its_sender() {
        let (sender, mut receiver) = unbounded();
        scope(|scope| {
            for from in 0..3_u32 {
                let sender = sender.clone();
                scope.spawn(move || (0..10_000_u32).for_each(|item| sender.send((from, item)).unwrap()));
            }
            drop(sender);
            let mut next = [0; 3];
            while let Ok((from, item)) = receiver.recv() {
                assert_eq!(item, next[from as usize]);
                next[from as usize] += 1;
            }
            assert_eq!(next, [10_000; 3]);
        });
    }

    #[test]
    fn try_recv_waits_for_no_sender() {
        let (sender, receiver) = unbounded();
        sender.send(1).unwrap();
        let locked = sender.0.state.lock();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        drop(locked);
        assert_eq!(receiver.try_recv(), Ok(1));
    }

    #[test]
    fn each_end_gets_an_error_when_the_other_is_dropped() {
        let (sender, receiver) = unbounded();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        sender.send(1).unwrap();
        drop(sender);
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(1), Err(TryRecvError::Disconnected)));
        let (sender, receiver) = unbounded();
        drop(receiver);
        assert_eq!(sender.send(1), Err(SendError(1)));
    }
}
