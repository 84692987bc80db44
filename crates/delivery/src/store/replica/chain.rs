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
    /// The statements of a transaction.
    Group = 2,
    /// Nothing was written; the owner lives.
    Beat = 3,
    /// The owner has closed the store.
    Ended = 4,
    /// The store is not replicated any more.
    Left = 5,
}

impl Kind {
    pub(super) fn of(number: i16) -> Option<Self> {
        [Self::Made, Self::Taken, Self::Group, Self::Beat, Self::Ended, Self::Left]
            .into_iter()
            .find(|it| *it as i16 == number)
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

/// A copy of a file that has the rows up to one of them, in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    pub at: Link,
    /// The epoch of its maker. No two bases have the same row and the same epoch.
    pub epoch: i64,
    pub pieces: i64,
    pub digest: [u8; 16],
    /// The wall clock when it was made.
    pub made_ms: i64,
}

impl Base {
    /// The piece 0, which is the last one that is inserted. The digest of the row is in front.
    pub(super) fn last_piece(&self) -> Vec<u8> {
        let numbers = [self.pieces.to_le_bytes(), self.made_ms.to_le_bytes()].concat();
        [&self.at.digest[..], &self.digest, &numbers].concat()
    }

    /// Reads what [`last_piece`](Base::last_piece) has written.
    pub(super) fn read(n: i64, epoch: i64, piece: &[u8]) -> Option<Self> {
        let (at, rest) = piece.split_first_chunk::<16>()?;
        let (digest, rest) = rest.split_first_chunk::<16>()?;
        let (pieces, rest) = rest.split_first_chunk::<8>()?;
        let made_ms = i64::from_le_bytes(rest.try_into().ok()?);
        let at = Link { n, digest: *at };
        Some(Self { at, epoch, pieces: i64::from_le_bytes(*pieces), digest: *digest, made_ms })
    }
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

    /// The take-over with this epoch.
    fn taken(&mut self, epoch: i64) -> Result<Option<Row>, String>;

    /// Inserts a piece of a base at row `n`, made by the process with this epoch. It is confirmed when this returns. Pieces count from 1;
    /// the piece 0 makes the base whole.
    fn put_piece(&mut self, n: i64, epoch: i64, piece: i64, body: &[u8]) -> Result<(), String>;

    /// The newest whole base whose row is in the chain.
    fn base(&mut self) -> Result<Option<Base>, String>;

    fn piece(&mut self, base: &Base, piece: i64) -> Result<Vec<u8>, String>;

    /// Deletes some thousand rows before a base, but row 0 and take-overs, and pieces of bases before it. Returns whether there may be more.
    fn trim(&mut self, base: &Base) -> Result<bool, String>;

    /// Waits before it is asked again; it may be shorter.
    fn wait(&mut self, time: Duration) {
        std::thread::park_timeout(time);
    }
}
