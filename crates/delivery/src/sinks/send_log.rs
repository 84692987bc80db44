//! What a sink sent, when, and what became of it: for traces, where the program makes a span of each (rule D15).

use std::collections::VecDeque;
use std::sync::Arc;

use super::reply::Replies;
use super::{Delivery, Reply, Verdict};
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::sync::Mutex;

/// What is kept until somebody takes it; more is dropped, as a trace is no record.
const MOST: usize = 10_000;

/// One attempt that has its answer.
#[derive(Debug)]
pub struct Sent {
    /// The message.
    pub delivery: Delivery,
    /// By the wall clock, in microseconds since 1970.
    pub began_us: i64,
    /// When the send ended, in microseconds since 1970.
    pub ended_us: i64,
    /// `Delivered`, or what it was instead.
    pub verdict: Verdict,
}

/// Filled by a sink, emptied by the program.
#[derive(Debug, Default)]
pub struct SendLog(Mutex<VecDeque<Sent>>);

impl SendLog {
    /// A reply that notes its answer too.
    pub(crate) fn noting(self: &Arc<Self>, delivery: &Delivery, reply: Reply) -> Reply {
        let note = Note {
            log: self.clone(),
            delivery: delivery.clone(),
            began_us: SystemWallTime.now_us(),
            number: reply.number(),
            reply: Mutex::new(Some(reply)),
        };
        Reply::new(note.number, 0, Arc::new(note))
    }

    /// All that has its answer by now.
    pub fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.0.lock()).into()
    }
}

struct Note {
    log: Arc<SendLog>,
    delivery: Delivery,
    began_us: i64,
    number: u64,
    reply: Mutex<Option<Reply>>,
}

impl Replies for Note {
    fn settle(&self, _: u64, _: usize, verdict: Verdict) {
        let Some(reply) = self.reply.lock().take() else { return };
        let (delivery, began_us) = (self.delivery.clone(), self.began_us);
        let sent =
            Sent { delivery, began_us, ended_us: SystemWallTime.now_us().max(began_us), verdict: verdict.clone() };
        reply.settle(verdict); // first what matters
        let mut log = self.log.0.lock();
        if log.len() < MOST {
            log.push_back(sent);
        }
    }
}
