//! Splits bytes into lines, in bounded memory: a block of bytes that is there, or a stream that is read block by block.
//!
//! A line that is too long is cut to its first [`KEPT`] bytes, and its whole length is still known. A byte order mark at
//! the start of the input is dropped.
//!
//! Example: with blocks of 8 bytes and lines of at most 4, the stream `aa\nbb\ncccccc\ndd\n` comes as the blocks
//! `aa\nbb\n`, then line 3 cut, of 7 bytes, then `dd\n`, which begins with line 4.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read, Result};
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memrchr};

use crate::delivery::error::BadRecord;
use crate::delivery::shown::with_commas;

/// Bytes that are kept of a line that is too long.
pub(crate) const KEPT: usize = 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1.
    pub number: u64,
    /// Its bytes, or the first of them if it is too long.
    pub data: &'a [u8],
    /// Where they begin in the block.
    pub start: usize,
    /// Its whole length, with the newline.
    pub size: usize,
}

impl<'a> Line<'a> {
    /// The line as text.
    ///
    /// # Errors
    /// It is too long, or not UTF-8.
    pub fn text(&self, max_line: usize) -> std::result::Result<&'a str, BadRecord> {
        if self.size > max_line {
            let size = with_commas(self.size);
            let reason = format!("the record has {size} bytes, only the first {} are kept here", with_commas(KEPT));
            return Err(BadRecord::new(reason, format!("at most {} bytes", with_commas(max_line))));
        }
        std::str::from_utf8(self.data).map_err(|error| {
            let reason = format!("byte {} of the line is not UTF-8", error.valid_up_to() + 1);
            BadRecord::new(reason, "UTF-8 text; other bytes as payload_base64")
        })
    }
}

/// Whole lines of an input, of which the last may lack its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<B> {
    /// The lines.
    pub bytes: B,
    /// The number of the first one.
    pub first_line: u64,
    /// Bytes of the last line that are not here, because it is too long.
    pub left_out: usize,
}

impl<B: AsRef<[u8]>> Block<B> {
    /// Bytes that are complete: all of an input.
    pub fn whole(bytes: B) -> Self {
        Self { bytes, first_line: 1, left_out: 0 }
    }

    /// The lines. One of more than `max_line` bytes is cut.
    pub fn lines(&self, max_line: usize) -> impl Iterator<Item = Line<'_>> {
        let bytes = self.bytes.as_ref();
        let (mut start, mut number) = (0, self.first_line);
        std::iter::from_fn(move || {
            let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
            let here = memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            let size = if here == rest.len() { here + self.left_out } else { here };
            let mut line = Line { number, data: &rest[..here], start, size };
            if size > max_line {
                line.data = &line.data[..here.min(KEPT)];
            }
            if number == 1 && line.data.starts_with(BYTE_ORDER_MARK) {
                line.data = &line.data[BYTE_ORDER_MARK.len()..];
                line.start += BYTE_ORDER_MARK.len();
            }
            start += here;
            number += 1;
            Some(line)
        })
    }
}

/// Reads a stream in blocks of whole lines. Lines that have come are returned before more is waited for.
#[derive(Debug)]
pub struct BlockReader<R> {
    stream: R,
    buffer: Vec<u8>,
    filled: usize,
    next_line: u64,
    max_line: usize,
    is_at_end: bool,
}

impl<R: Read> BlockReader<R> {
    /// Reads about `block_size` bytes at a time, and more only for a line that is longer. Lines have at most `max_line`.
    pub fn new(stream: R, block_size: usize, max_line: usize) -> Self {
        let buffer = vec![0; block_size.max(KEPT)];
        Self { stream, buffer, filled: 0, next_line: 1, max_line, is_at_end: false }
    }

    /// The next lines, or nothing at the end.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn next_block(&mut self) -> Result<Option<Block<Arc<[u8]>>>> {
        let mut searched = 0;
        loop {
            if let Some(end) = memrchr(b'\n', &self.buffer[searched..self.filled]) {
                return Ok(Some(self.take(searched + end + 1)));
            }
            searched = self.filled;
            if self.filled > self.max_line {
                return self.take_cut().map(Some);
            }
            if self.is_at_end {
                return Ok((self.filled > 0).then(|| self.take(self.filled)));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        if self.filled == self.buffer.len() {
            let size = (self.buffer.len() * 2).min(self.max_line.saturating_add(KEPT)).max(self.buffer.len() + 1);
            self.buffer.resize(size, 0);
        }
        loop {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(count) => {
                    self.filled += count;
                    self.is_at_end = count == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, end: usize) -> Block<Arc<[u8]>> {
        let bytes: Arc<[u8]> = self.buffer[..end].into();
        self.buffer.copy_within(end..self.filled, 0);
        self.filled -= end;
        let first_line = self.next_line;
        self.next_line += memchr_iter(b'\n', &bytes).count() as u64;
        Block { bytes, first_line, left_out: 0 }
    }

    /// A line that is too long: its beginning is kept, the rest is skipped.
    fn take_cut(&mut self) -> Result<Block<Arc<[u8]>>> {
        let bytes: Arc<[u8]> = self.buffer[..KEPT.min(self.filled)].into();
        let mut size = 0;
        loop {
            if let Some(end) = memchr(b'\n', &self.buffer[..self.filled]) {
                size += end + 1;
                self.buffer.copy_within(end + 1..self.filled, 0);
                self.filled -= end + 1;
                break;
            }
            size += self.filled;
            self.filled = 0;
            if self.is_at_end {
                break;
            }
            self.fill()?;
        }
        let first_line = self.next_line;
        self.next_line += 1;
        Ok(Block { left_out: size - bytes.len(), bytes, first_line })
    }
}

#[cfg(test)]
mod tests;
