//! Where a record was read, and its original bytes. A dead letter shows both (rule D2).
//!
//! A record shares the block of bytes from which it was read, so the original costs no copy.

use std::fmt;
use std::sync::Arc;

/// The place in the input where a record was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The name of the file or connection.
    pub source: Arc<str>,
    /// The line or row of the record, from 1.
    pub line: u64,
    /// The original record. `None` if only the message came here; then the message is written out as a record.
    pub record: Option<Record>,
}

impl Origin {
    /// The original record, or nothing.
    #[must_use]
    pub(crate) fn record(&self) -> &[u8] {
        self.record.as_ref().map_or(&[], Record::as_bytes)
    }
}

/// The bytes of a record, as a range of the block that was read. The block lives as long as one of its records.
#[derive(Clone)]
pub struct Record {
    block: Arc<[u8]>,
    start: u32,
    end: u32,
}

impl Record {
    /// A record made from a range of a block. A range that reaches past the block is cut.
    #[must_use]
    pub(crate) fn part_of(block: &Arc<[u8]>, start: usize, end: usize) -> Self {
        let within = |at: usize| at.min(block.len()).min(u32::MAX as usize) as u32;
        let (start, end) = (within(start), within(end));
        Self { block: Arc::clone(block), start: start.min(end), end }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.block[self.start as usize..self.end as usize]
    }
}

impl From<&[u8]> for Record {
    fn from(bytes: &[u8]) -> Self {
        Self::part_of(&bytes.into(), 0, bytes.len())
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({})", self.as_bytes().escape_ascii())
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Record {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_part_of_its_block_and_never_more() {
        let block: Arc<[u8]> = (*b"one two").into();
        assert_eq!(Record::part_of(&block, 4, 7).as_bytes(), b"two");
        assert_eq!(Record::part_of(&block, 4, 99).as_bytes(), b"two");
        assert_eq!(Record::part_of(&block, 99, 4).as_bytes(), b"");
        assert_eq!(Record::from(&b"two"[..]), Record::part_of(&block, 4, 7));
    }
}
