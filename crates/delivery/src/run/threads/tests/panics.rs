//! A program's functions panic, or the writer does. The run ends with an error, and keeps all accepted messages.

use std::sync::{Arc, OnceLock};

use super::super::senders::own_fault_caught;
use crate::base::error::DeliveryError;
use crate::scenarios::testing::{Delivering, LONG, many, settings};
use crate::sinks::{AroundFn, Delivery, OpenSink, Opened, Reply, ReplySink, Sink, SyncFn, Verdict, Verdicts};

/// Panics in the function with this name, once the test has set `accepted`; in `position`, only after a send.
#[derive(Clone)]
struct Panics {
    place: &'static str,
    accepted: Arc<OnceLock<()>>,
    has_sent: bool,
}

impl Panics {
    fn new(place: &'static str) -> Self {
        Self { place, accepted: Arc::default(), has_sent: false }
    }

    fn opener(&self) -> OpenSink {
        let sink = self.clone();
        Arc::new(move |_: &str| Ok(Opened::Sink(Box::new(sink.clone()))))
    }

    fn at(&self, place: &str) {
        if self.place == place {
            self.accepted.wait();
            panic!("the test panics in {place}");
        }
    }
}

/// Starts a run. A message is on disk before the sink panics.
fn started(sink: &Panics, open: OpenSink) -> Delivering {
    let delivering = Delivering::start(settings(), open);
    delivering.submit(many(1));
    sink.accepted.set(()).unwrap();
    delivering
}

impl Sink for Panics {
    fn max_messages(&self) -> usize {
        self.at("max_messages");
        1
    }

    fn is_cut_off(&self) -> bool {
        self.at("is_cut_off");
        true
    }

    fn around(&self) -> Option<AroundFn> {
        self.at("around");
        None
    }

    fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        self.at("send");
        self.has_sent = true;
        Ok(Verdicts::Delivered)
    }

    fn position(&self) -> Option<String> {
        if self.has_sent {
            self.at("position");
        }
        None
    }

    fn sync(&self) -> Option<SyncFn> {
        let sink = self.clone();
        Some(Arc::new(move || {
            sink.at("sync");
            Ok(())
        }))
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        self.at("close");
        Ok(())
    }
}

#[test]
fn a_sink_that_panics_ends_the_run_and_nothing_is_lost__d6() {
    for place in ["max_messages", "is_cut_off", "around", "send", "position", "sync", "close"] {
        let sink = Panics::new(place);
        let delivering = started(&sink, sink.opener());
        let _ = delivering.running.wait_until_empty(LONG);
        let failed = delivering.running.close(Some(LONG)).unwrap_err().to_string();
        assert!(failed.contains("the destination panicked"), "{place}: {failed}");
        let again = Delivering::on(delivering.folder.clone(), settings(), Panics::new("nothing").opener());
        assert!(again.running.wait_until_empty(LONG).unwrap());
        assert_eq!(again.running.engine().summary().delivered, u64::from(place != "close"), "{place}");
        again.running.close(Some(LONG)).unwrap();
    }
}

/// A sink that answers later, like the webhook sink.
struct OverlappingPanics(Panics);

impl ReplySink for OverlappingPanics {
    fn max_in_flight(&self) -> usize {
        8
    }

    fn max_bytes(&self) -> usize {
        self.0.at("max_bytes");
        usize::MAX
    }

    fn is_cut_off(&self) -> bool {
        self.0.is_cut_off()
    }

    fn start(&mut self, _: Delivery, reply: Reply) -> Result<(), DeliveryError> {
        self.0.at("start");
        reply.settle(Verdict::Delivered);
        Ok(())
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        self.0.close()
    }
}

#[test]
fn a_sink_that_answers_later_and_panics_ends_the_run_and_no_close_waits_for_it__d6_d13() {
    for place in ["is_cut_off", "start", "close"] {
        let sink = Panics::new(place);
        let inner = sink.clone();
        let opener = move |_: &str| Ok(Opened::ReplySink(Box::new(OverlappingPanics(inner.clone()))));
        let delivering = started(&sink, Arc::new(opener));
        let _ = delivering.running.wait_until_empty(LONG);
        let failed = delivering.running.close(Some(LONG)).unwrap_err().to_string();
        assert!(failed.contains("the destination panicked"), "{place}: {failed}");
    }
}

#[test]
fn a_fault_of_the_engine_is_not_told_as_the_destinations__d6_d13() {
    let failed = own_fault_caught::<()>(|| panic!("the test panics")).unwrap_err().to_string();
    assert!(failed.contains("a fault of tickwheel") && !failed.contains("destination"), "{failed}");
}

#[test]
fn a_writer_that_panics_leaves_no_call_without_an_answer__d9() {
    let delivering = Delivering::start(settings(), Panics::new("nothing").opener());
    delivering.running.engine().submit_with(many(1), Box::new(|_| panic!("the test panics"))).unwrap();
    let failed = delivering.running.wait_until_empty(LONG).unwrap_err().to_string();
    assert!(failed.contains("a thread that uses it panicked"), "{failed}");
    assert!(delivering.running.engine().submit(many(1)).is_err());
    assert!(matches!(delivering.running.close(Some(LONG)), Err(DeliveryError::Store(_))));
    let again = Delivering::on(delivering.folder.clone(), settings(), Panics::new("nothing").opener());
    assert!(again.running.wait_until_empty(LONG).unwrap());
    assert_eq!(again.running.close(Some(LONG)).unwrap().delivered, 1);
}
