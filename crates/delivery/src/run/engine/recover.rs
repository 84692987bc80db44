//! After a crash, asks the destination which messages have arrived, of those that may have been sent (rule D5).

use rustc_hash::FxHashSet;

use super::Engine;
use crate::base::error::DeliveryError;
use crate::group::writer::POSITION;
use crate::message::Message;
use crate::sinks::{Delivery, Sink};
use crate::store::{Done, Outcome};

impl Engine {
    /// Asks the sink which messages have arrived, among those a crashed process may have sent (D5). Without a sink, none of
    /// them counts as arrived.
    ///
    /// # Errors
    /// The store or the sink failed.
    pub(crate) fn recover(&self, mut sink: Option<&mut dyn Sink>) -> Result<(), DeliveryError> {
        // The sink may be Python, so it is asked while no lock is held.
        let (rows, position) = self
            .try_writer(|writer| Ok((writer.store.may_have_arrived()?, writer.store.get_meta::<String>(POSITION)?)))?;
        let now_ms = self.wall.now_us() / 1000;
        let mut absent = FxHashSet::default();
        for part in rows.chunks(1_000) {
            let seqs: Vec<i64> = part.iter().map(|it| it.seq).collect();
            let mut messages = self.try_writer(|writer| writer.store.bodies(&seqs))?;
            let deliveries: Vec<Delivery> = part
                .iter()
                .filter_map(|it| {
                    Some(Delivery {
                        seq: it.seq,
                        message: Message::from_parts(messages.remove(&it.seq)?.body, it.due_ms, None),
                        delivered_at_ms: now_ms,
                        lateness_us: 0,
                        attempt: it.attempts + 1,
                        redelivered: true,
                        to: None,
                        owner: None,
                    })
                })
                .collect();
            let arrived = match &mut sink {
                Some(sink) => sink.arrived(&deliveries, position.as_deref())?,
                None => Vec::new(),
            };
            let arrived: FxHashSet<i64> = arrived.into_iter().collect();
            self.check_process()?;
            absent.extend(seqs.iter().filter(|seq| !arrived.contains(seq)));
            let done: Vec<Done> = part
                .iter()
                .filter(|it| arrived.contains(&it.seq))
                .map(|it| Done {
                    seq: it.seq,
                    due_ms: it.due_ms,
                    outcome: Outcome::Delivered,
                    at_ms: now_ms,
                    lateness_us: None,
                    attempts: it.attempts,
                    redelivered: true,
                })
                .collect();
            self.try_writer(|writer| writer.note_arrived(&done, &self.dispatcher, now_ms))?;
        }
        let position = sink.and_then(|sink| sink.position());
        self.check_process()?;
        self.try_writer(|writer| {
            writer.store.begin()?;
            writer.store.put_meta(POSITION, position)?;
            writer.store.commit()?;
            writer.wait_for_earlier(absent, &self.queue);
            let mut state = self.queue.lock();
            state.summary = writer.summary;
            state.open = writer.store.open_count();
            state.recurring = writer.store.recurring_count();
            Ok(())
        })
    }
}
