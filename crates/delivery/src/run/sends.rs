//! How many sends of one sink are on disk, so the sink can forget its own notes about them (rule D5).
//!
//! A sink may write a message and a note of it in one transaction. It needs the note until the engine has committed the
//! outcome. A clock cannot tell when this happens, because a commit may take long.
//!
//! ```text
//! send 1 ── settled, group 7 ──┐
//! send 2 ── settled, group 7 ──┼── group 7 on disk: two sends are committed
//! send 3 ── settled, group 8 ──┘   group 8 on disk: three
//! ```

use std::collections::VecDeque;

use super::engine::Engine;
use crate::sinks::Sink;

/// The sends of one sink.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    /// The group of each send that is not known to be on disk, in order. The send is on disk after this group's commit.
    groups: VecDeque<u64>,
    committed: u64,
}

impl Sends {
    /// Tells the sink which sends it can forget. Called right before a send.
    pub(crate) fn tell(&mut self, engine: &Engine, sink: &mut dyn Sink) {
        let earlier = engine.queue.earlier_is_over();
        let committed = engine.queue.committed_group();
        while self.groups.front().is_some_and(|group| *group <= committed) {
            self.groups.pop_front();
            self.committed += 1;
        }
        sink.committed(self.committed, earlier);
    }

    /// Notes a send. This thread has just given its outcomes to the engine.
    pub(crate) fn settled(&mut self, engine: &Engine) {
        self.groups.push_back(engine.queue.next_group());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::base::clock::SystemWallTime;
    use crate::base::error::DeliveryError;
    use crate::group::items::Item;
    use crate::message::Cancel;
    use crate::scenarios::testing::{many, settings};
    use crate::sinks::{Delivery, Verdict, Verdicts};
    use crate::store::file::owner::Ownership;
    use tickwheel::Clock;

    /// Reports the arrived messages that the test sets, and remembers the last call of `committed`.
    #[derive(Default)]
    struct Keeps {
        has: Vec<i64>,
        told: (u64, bool),
    }

    impl Sink for Keeps {
        fn send(&mut self, _: &[Delivery]) -> Result<Verdicts, DeliveryError> {
            unreachable!("the test answers")
        }

        fn committed(&mut self, sends: u64, earlier: bool) {
            self.told = (sends, earlier);
        }

        fn arrived(&mut self, _: &[Delivery], _: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
            Ok(self.has.clone())
        }
    }

    struct Driven {
        engine: Engine,
        sink: Keeps,
        sends: Sends,
    }

    impl Driven {
        fn open(folder: &Path, sink: Keeps) -> Self {
            let ownership = Ownership::take(&folder.join("store.db"), &mut |_| (), &mut || false).unwrap();
            let engine = Engine::open(ownership, settings(), Clock::manual(0), Arc::new(SystemWallTime)).unwrap();
            let mut driven = Self { engine, sink, sends: Sends::default() };
            driven.engine.recover(Some(&mut driven.sink)).unwrap();
            driven.engine.start(driven.engine.wall_clock());
            driven.write();
            driven
        }

        fn write(&self) {
            while self.engine.write(&|| Ok(())).unwrap() {}
        }

        fn submit(&self, items: Vec<Item>) {
            drop(self.engine.submit(items).unwrap());
            self.write();
        }

        /// Sends one message. Returns the arguments of the call of `committed` before it.
        fn send(&mut self, verdict: Verdict) -> (u64, bool) {
            let (flight, _) = self.engine.take(1, usize::MAX, false).expect("something is due");
            let told = self.told();
            self.engine.settle(flight, Verdicts::Each(vec![verdict]), None);
            self.sends.settled(&self.engine);
            told
        }

        fn told(&mut self) -> (u64, bool) {
            self.sends.tell(&self.engine, &mut self.sink);
            self.sink.told
        }
    }

    #[test]
    fn a_send_counts_once_its_outcomes_are_on_disk_however_long_that_takes__d5() {
        let folder = tempfile::tempdir().unwrap();
        let mut driven = Driven::open(folder.path(), Keeps::default());
        driven.submit(many(5));
        assert_eq!(driven.send(Verdict::Delivered), (0, true), "nothing was sent before");
        assert_eq!(driven.send(Verdict::Refused("no".to_owned())), (0, true));
        let begun = driven.engine.begin_group().unwrap();
        assert_eq!(driven.send(Verdict::Delivered), (0, true), "the group is being written");
        let committed = driven.engine.commit_group(begun, &|| Ok(())).unwrap();
        driven.engine.publish_group(&committed).unwrap();
        assert_eq!(driven.send(Verdict::Delivered), (2, true), "the third send came too late for that group");
        driven.write();
        assert_eq!(driven.told(), (4, true));
    }

    #[test]
    fn what_an_earlier_process_sent_counts_once_each_suspect_has_its_outcome_on_disk__d5() {
        let folder = tempfile::tempdir().unwrap();
        let mut driven = Driven::open(folder.path(), Keeps::default());
        driven.submit(many(4));
        driven.send(Verdict::Delivered);
        drop(driven); // it crashes
        let mut driven = Driven::open(folder.path(), Keeps { has: vec![1], ..Keeps::default() });
        assert_eq!(driven.told(), (0, false), "three may have been sent");
        driven.submit(vec![Item::Cancel(Cancel { id: "3".to_owned(), key: None, keep_days: 7 })]);
        driven.write();
        driven.send(Verdict::Delivered);
        driven.send(Verdict::Delivered);
        assert_eq!(driven.told(), (0, false));
        driven.write();
        assert_eq!(driven.told(), (2, true));
    }
}
