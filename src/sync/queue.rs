//! The queue of a worker: unbounded, many senders, one receiver, which sleeps at once when the queue is empty.
//!
//! The standard library's channel spins for some microseconds first. At a thousand wake-ups per second, that was half of the
//! worker's time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, SendError, TryRecvError};

use super::plain_mutex::{PlainCondvar, PlainMutex};

#[derive(Debug)]
struct Shared<T> {
    state: PlainMutex<State<T>>,
    changed: PlainCondvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
}

/// The end where items go in.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// The end where items come out.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Shared<T>>);

/// An empty queue.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let state = PlainMutex::new(State { items: VecDeque::new(), senders: 1, has_receiver: true });
    let shared = Arc::new(Shared { state, changed: PlainCondvar::default() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
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
        let may_sleep = state.items.is_empty();
        state.items.push_back(item);
        drop(state);
        if may_sleep {
            self.0.changed.notify_all();
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
        self.0.state.lock().senders -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    /// For a thread that has other work. It does not wait for the lock either (border rule 2): while a sender holds the lock,
    /// the queue counts as empty.
    ///
    /// # Errors
    /// There is no item.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.try_lock().ok_or(TryRecvError::Empty)?;
        let none = if state.senders == 0 { TryRecvError::Disconnected } else { TryRecvError::Empty };
        state.items.pop_front().ok_or(none)
    }

    /// Waits for the next item.
    ///
    /// # Errors
    /// There are no senders and no items any more.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        while state.items.is_empty() && state.senders > 0 {
            state = self.0.changed.wait(state);
        }
        state.items.pop_front().ok_or(RecvError)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_receiver = false;
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items); // after the lock: their destructors are foreign code
    }
}

#[cfg(test)]
mod tests {
    use std::thread::scope;

    use super::*;

    #[test]
    fn every_item_comes_once_and_in_the_order_of_its_sender() {
        let (sender, receiver) = unbounded();
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
        assert_eq!(receiver.recv(), Err(RecvError));
        let (sender, receiver) = unbounded();
        drop(receiver);
        assert_eq!(sender.send(1), Err(SendError(1)));
    }
}
