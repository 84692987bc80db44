//! Splits a block of bytes into lines.
//!
//! A line that is too long is cut to its first [`KEPT`] bytes, but keeps its whole length. A byte order mark at the
//! start of the input is dropped.
//!
//! Example: lines may have at most 4 bytes. Then `aa\nbb\ncccccc\ndd\n` has the lines `aa` and `bb`, then line 3,
//! which is too long with its 7 bytes, then `dd`.

use memchr::memchr;

use crate::base::display::with_commas;
use crate::base::error::BadRecord;

/// How many bytes of a too long line are kept.
pub(crate) const KEPT: usize = 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF_16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// A line of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The number of the line, from 1.
    pub number: u64,
    /// The bytes of the line; if it is too long, only the first of them.
    pub data: &'a [u8],
    /// The whole length of the line, with the newline.
    pub size: usize,
}

impl<'a> Line<'a> {
    /// The line as text.
    ///
    /// # Errors
    /// The line is too long, or not UTF-8.
    pub(crate) fn text(&self, max_line: usize) -> Result<&'a str, BadRecord> {
        if self.size > max_line {
            let size = with_commas(self.size);
            let reason = format!("the record has {size} bytes, only the first {} are kept here", with_commas(KEPT));
            return Err(BadRecord::new(reason, format!("at most {} bytes", with_commas(max_line))));
        }
        std::str::from_utf8(self.data).map_err(|error| {
            if self.number == 1 && UTF_16_MARKS.iter().any(|mark| self.data.starts_with(mark)) {
                return BadRecord::new("the text is UTF-16", "UTF-8, as `iconv -f UTF-16 -t UTF-8` makes it");
            }
            let reason = format!("byte {} of the line is not UTF-8", error.valid_up_to() + 1);
            BadRecord::new(reason, "UTF-8 text; other bytes as payload_base64")
        })
    }
}

/// Whole lines of an input. The last line may lack its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<B> {
    /// The lines.
    pub bytes: B,
    /// The number of the first line.
    pub first_line: u64,
    /// How many bytes of the last line are missing, because the line is too long.
    pub left_out: usize,
}

impl<B: AsRef<[u8]>> Block<B> {
    /// A block that holds all of an input.
    pub(crate) fn whole(bytes: B) -> Self {
        Self { bytes, first_line: 1, left_out: 0 }
    }

    /// The lines. A line of more than `max_line` bytes is cut.
    pub(crate) fn lines(&self, max_line: usize) -> impl Iterator<Item = Line<'_>> {
        let bytes = self.bytes.as_ref();
        let (mut start, mut number) = (0, self.first_line);
        std::iter::from_fn(move || {
            let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
            let here = memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            let size = if here == rest.len() { here + self.left_out } else { here };
            let mut line = Line { number, data: &rest[..here], size };
            if size > max_line {
                line.data = &line.data[..here.min(KEPT)];
            }
            if number == 1 && line.data.starts_with(BYTE_ORDER_MARK) {
                line.data = &line.data[BYTE_ORDER_MARK.len()..];
            }
            start += here;
            number += 1;
            Some(line)
        })
    }
}

#[cfg(test)]
mod tests;
