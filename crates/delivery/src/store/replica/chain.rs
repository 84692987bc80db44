//! Rows, their digests, and what keeps them.

use std::time::Duration;

use blake2b_simd::Params;

/// A row of a chain, by its number and its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Link {
    pub n: i64,
    pub digest: [u8; 16],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first row: the name of the store, and its format.
    Made = 0,
    /// Another process owns the store from here on. The body names it, and is never the same.
    Taken = 1,
    /// What a transaction has written.
    Group = 2,
    /// Nothing was written; the owner lives.
    Beat = 3,
    /// The owner has closed the store.
    Ended = 4,
}

impl Kind {
    pub(super) fn of(number: i16) -> Option<Self> {
        [Self::Made, Self::Taken, Self::Group, Self::Beat, Self::Ended].into_iter().find(|it| *it as i16 == number)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub link: Link,
    /// The number of the take-over that its writer began with.
    pub epoch: i64,
    pub kind: Kind,
    pub body: Vec<u8>,
}

impl Row {
    /// The row after this one.
    pub(crate) fn after(before: Link, epoch: i64, kind: Kind, body: Vec<u8>) -> Self {
        let n = before.n + 1;
        let mut state = Params::new().hash_length(16).to_state();
        state.update(&before.digest).update(&n.to_le_bytes()).update(&epoch.to_le_bytes());
        let hash = state.update(&[kind as u8]).update(&body).finalize();
        let digest = hash.as_bytes().try_into().expect("16 bytes");
        Self { link: Link { n, digest }, epoch, kind, body }
    }

    pub(crate) fn head(&self) -> Head {
        Head { link: self.link, epoch: self.epoch, kind: self.kind }
    }

    /// Whether it is the row after this one, and nothing of it was changed.
    pub(crate) fn follows(&self, before: Link) -> bool {
        Self::after(before, self.epoch, self.kind, self.body.clone()).link == self.link
    }
}

/// The newest row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub link: Link,
    pub epoch: i64,
    pub kind: Kind,
}

/// How an insert of a row ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Appended {
    Stored,
    /// The row is there, from an earlier try whose end is unknown. It may be lost as long as no later insert is confirmed.
    Seen,
    /// The row before is another one, or another row has its number.
    Refused,
    /// It may be there or not: the reason. Insert it again.
    Unknown(String),
}

/// What keeps the rows. An error is text for people.
pub(crate) trait Chain: Send {
    /// Inserts a row after `before`. The first row has none before it.
    fn append(&mut self, before: Option<Link>, row: &Row) -> Appended;

    /// The newest row. `None`: there is no row.
    fn newest(&mut self) -> Result<Option<Head>, String>;

    /// The rows from this number on, at most some megabytes.
    fn read(&mut self, from: i64) -> Result<Vec<Row>, String>;

    /// How many rows there are after this number, and the bytes of their bodies, as they are kept.
    fn after(&mut self, n: i64) -> Result<(u64, u64), String>;

    /// Waits before it is asked again; it may be shorter.
    fn wait(&mut self, time: Duration) {
        std::thread::park_timeout(time);
    }
}
