//! A log of sends for traces: the program makes a span of each send, from its start, its end and its verdict (rule
//! D15).

use std::collections::VecDeque;
use std::sync::Arc;

use super::reply::Replies;
use super::{Delivery, Reply, Verdict};
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::sync::Mutex;

/// The most sends that are kept until the program takes them. Others are dropped, because a trace may have gaps.
const MOST: usize = 10_000;

/// One attempt with its answer.
#[derive(Debug)]
pub struct Sent {
    /// The message.
    pub delivery: Delivery,
    /// When the send began, by the wall clock, in microseconds since 1970.
    pub began_us: i64,
    /// When the send ended, in microseconds since 1970.
    pub ended_us: i64,
    /// The answer.
    pub verdict: Verdict,
}

/// The sink fills it, and the program empties it.
#[derive(Debug, Default)]
pub struct SendLog(Mutex<VecDeque<Sent>>);

impl SendLog {
    /// Makes a reply that also notes its answer here.
    pub(crate) fn noting(self: &Arc<Self>, delivery: &Delivery, reply: Reply) -> Reply {
        let note = Note {
            log: self.clone(),
            delivery: delivery.clone(),
            began_us: SystemWallTime.now_us(),
            number: reply.number(),
            reply: Mutex::new(Some(reply)),
        };
        Reply::new(note.number, Arc::new(note))
    }

    /// Takes all sends that have an answer by now.
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
    fn settle(&self, _: u64, verdict: Verdict) {
        let Some(reply) = self.reply.lock().take() else { return };
        let (delivery, began_us) = (self.delivery.clone(), self.began_us);
        let sent =
            Sent { delivery, began_us, ended_us: SystemWallTime.now_us().max(began_us), verdict: verdict.clone() };
        reply.settle(verdict); // first, because a send must not wait for the log
        let mut log = self.log.0.lock();
        if log.len() < MOST {
            log.push_back(sent);
        }
    }
}
