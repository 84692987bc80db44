//! Compares the marks with a search through all stored messages (rule S4).

use super::World;
use super::types::{Stored, text};
use crate::message::partition::partition_of_name;
use crate::message::partition::{Earliest, PerPartition};

impl World {
    /// The earliest due time of open messages on disk, in each partition. The due time before a reschedule counts too.
    pub(super) fn earliest_open(&self) -> Earliest {
        self.earliest_of(|it| it.end.is_none())
    }

    fn earliest_of(&self, counts: impl Fn(&Stored) -> bool) -> Earliest {
        let mut earliest = Earliest::default();
        for (name, all) in &self.stored {
            let (key, id) = text(*name);
            for it in all.iter().filter(|it| counts(it)) {
                earliest.add(partition_of_name(key.as_deref(), &id), it.due_ms.min(it.unmoved_ms));
            }
        }
        earliest
    }

    pub(super) fn check_marks(&self) {
        let now_ms = self.wall_ms();
        let marks = self.engine.marks(now_ms).unwrap();
        let mut earliest = self.earliest_open();
        assert_eq!(highest(&[marks, earliest.marks(now_ms)]), earliest.marks(now_ms), "a mark has passed an open one");
        if self.committed.is_some() {
            let (open_before, accepted_before) = self.before_commit; // what ended since then counts until that is published
            earliest.add_all(&open_before);
            earliest.add_all(&self.earliest_of(|it| it.order > accepted_before));
        }
        assert_eq!(highest(&[marks, earliest.marks(now_ms)]), marks, "a mark stays behind");
    }
}

fn highest(marks: &[PerPartition]) -> PerPartition {
    std::array::from_fn(|place| marks.iter().map(|it| it[place]).max().expect("there is one"))
}
