//! Splits the lines of a CSV file into rows, and rows into cells, by RFC 4180.
//!
//! The crate `csv-core` never reports an error, but here a row that breaks the rules must become a dead letter.
//!
//! - A blank line is no row. A row has at most as many bytes as a record.
//! - If a row can't be read, only its first line is lost. The next row begins with the next line. So a quote that is
//!   never closed does not cost the rest of the file.
//! - The lines after that first line are read again. The bytes that are read again are bounded by twice the size of a
//!   record plus all bytes of the input so far. At this bound, a row that does not end is given up earlier.
//!
//! Example: the input has the lines `a,"b` and `c,d` and `"e"f`. Line 2 is a row. The lines 1 and 3 are errors, because
//! text follows a closing quote.

use std::mem::take;

use memchr::{memchr, memchr3};

use crate::base::display::with_commas;
use crate::base::error::BadRecord;
use crate::formats::lines::Block;

/// A row of the input.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    /// The number of its first line, from 1.
    pub line: u64,
    /// Its bytes without the line end. Of a row that can't be read, the bytes of its first line.
    pub data: &'a [u8],
    /// Its cells, or why it can't be read.
    pub cells: Result<&'a [String], BadRecord>,
}

/// The rows of one input, whose lines come in blocks.
#[derive(Debug, Default)]
pub(crate) struct CsvSplit {
    max_row: usize,
    /// A name in the header, by which the separator is found.
    needed_name: String,
    /// How many bytes may be read again. The last line of a row can make it negative.
    patience: isize,
    /// Known once there is a header.
    separator: Option<u8>,
    /// The lines of the current row and the lines after it. Earlier lines are dropped with the next block.
    bytes: Vec<u8>,
    /// How many bytes of the last line are missing, as in `Block`.
    left_out: usize,
    has_ended: bool,
    /// Where the row begins in `bytes`.
    start: usize,
    /// Where the next line begins in `bytes`.
    next: usize,
    /// The number of the row's first line.
    line: u64,
    /// How many bytes the first line has.
    first_size: usize,
    /// How many bytes of the first line a dead letter shows.
    first_kept: usize,
    /// How many lines of the row were read. Between two blocks it is more than 0 only within quotes.
    taken: u64,
    /// The cells of these lines.
    cells: Vec<String>,
}

impl CsvSplit {
    /// `needed_name`: a name that the header must have.
    pub(crate) fn new(max_row: usize, needed_name: &str) -> Self {
        let patience = max_row.saturating_mul(2) as isize;
        Self { max_row, needed_name: needed_name.to_owned(), patience, line: 1, ..Self::default() }
    }

    /// Adds a block of whole lines. `next_row` must have returned all rows of earlier blocks. An empty block is the end
    /// of the input.
    pub(crate) fn add(&mut self, block: &[u8], left_out: usize) {
        let done = if self.taken > 0 { self.start } else { self.next };
        self.bytes.drain(..done);
        self.bytes.extend_from_slice(block);
        (self.start, self.next) = (0, self.next - done);
        (self.left_out, self.has_ended) = (left_out, block.is_empty());
    }

    /// The next row. `None` if more lines are needed.
    pub(crate) fn next_row(&mut self) -> Option<Row<'_>> {
        let fault = loop {
            match self.take_line() {
                Ok(Some(false)) => {}
                Ok(Some(true)) => break None,
                Ok(None) => return None,
                Err(bad) => break Some(bad),
            }
        };
        let read = self.next - self.start;
        let (size, kept, lines) =
            if fault.is_some() { (self.first_size, self.first_kept, 1) } else { (read, read, self.taken) };
        let (line, mut data) = (self.line, &self.bytes[self.start..self.start + kept]);
        while let [rest @ .., b'\r' | b'\n'] = data {
            data = rest;
        }
        self.patience += size as isize - (read - size) as isize;
        (self.line, self.taken, self.next) = (line + lines, 0, self.start + size);
        Some(Row { line, data, cells: fault.map_or(Ok(&self.cells[..]), Err) })
    }

    /// Adds a line to the row, and returns whether the row ends with it. A blank line before the row is skipped. `None`
    /// if there is no line.
    ///
    /// # Errors
    /// The row can't be read.
    fn take_line(&mut self) -> Result<Option<bool>, BadRecord> {
        let rest = &self.bytes[self.next..];
        let block = Block { bytes: rest, first_line: self.line + self.taken, left_out: self.left_out };
        let Some(line) = block.lines(self.max_row).next() else {
            let is_cut = self.has_ended && self.taken > 0;
            return if is_cut { Err(not_csv("unexpected end of data")) } else { Ok(None) };
        };
        let is_first = self.taken == 0;
        let end = self.next + line.size.min(rest.len());
        if is_first {
            self.start = self.next + line.start;
            (self.first_size, self.first_kept) = (end - self.start, line.data.len());
            self.cells.clear();
        }
        let size = (self.next + line.size - self.start) as isize;
        (self.taken, self.next) = (self.taken + 1, end);
        if !is_first && size > self.patience.min(self.max_row as isize) {
            let allowed = format!("a row of at most {} bytes", with_commas(self.max_row));
            return Err(BadRecord::new("a quoted cell does not end", allowed));
        }
        let text = line.text(self.max_row).map_err(|bad| {
            let reason = format!("line {} in a quoted cell is too long, or not UTF-8", line.number);
            if is_first { bad } else { BadRecord::new(reason, "each line a row, or text") }
        })?;
        if is_first && is_line_end(text) {
            self.patience += size;
            (self.line, self.taken) = (self.line + 1, 0);
            return Ok(Some(false));
        }
        let separator = *self.separator.get_or_insert_with(|| separator_of(text, &self.needed_name));
        add_line(&mut self.cells, text, separator, !is_first).map(Some).map_err(|what| not_csv(&what))
    }
}

/// Adds the cells of a line, and returns whether the row ends with it. `is_quoted`: the last cell is still in quotes.
///
/// # Errors
/// The row is not CSV.
fn add_line(cells: &mut Vec<String>, line: &str, separator: u8, mut is_quoted: bool) -> Result<bool, String> {
    let bytes = line.as_bytes();
    let mut cell = cells.pop_if(|_| is_quoted).unwrap_or_default();
    let mut at = 0;
    loop {
        if !is_quoted && bytes.get(at) == Some(&b'"') {
            (is_quoted, at) = (true, at + 1);
        }
        let rest = &bytes[at..];
        let found = if is_quoted { memchr(b'"', rest) } else { memchr3(separator, b'\n', b'\r', rest) };
        let end = found.map_or(bytes.len(), |length| at + length);
        cell.push_str(&line[at..end]);
        at = end;
        if is_quoted {
            if found.is_none() {
                cells.push(cell);
                return Ok(false);
            }
            at += 1;
            if bytes.get(at) == Some(&b'"') {
                cell.push('"');
                at += 1;
                continue;
            }
        }
        cells.push(take(&mut cell));
        match bytes.get(at) {
            Some(byte) if *byte == separator => (is_quoted, at) = (false, at + 1),
            Some(b'\r' | b'\n') | None => break,
            Some(_) => return Err(format!("'{}' expected after '\"'", char::from(separator))),
        }
    }
    if is_line_end(&line[at..]) { Ok(true) } else { Err("new-line character seen in unquoted field".into()) }
}

/// Whether a line, or the rest of one, is blank.
fn is_line_end(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// The first separator that makes a cell with the needed name, as a name may contain another separator. If there is
/// none, the first that separates cells.
fn separator_of(header: &str, needed_name: &str) -> u8 {
    let cells_of = |separator| {
        let mut cells = Vec::new();
        let is_row = add_line(&mut cells, header, separator, false) == Ok(true) && cells.len() > 1;
        if is_row { cells } else { Vec::new() }
    };
    let headers = [b',', b';', b'\t'].map(|separator| (separator, cells_of(separator)));
    let has_name = |(_, cells): &&(u8, Vec<String>)| cells.iter().any(|cell| cell == needed_name);
    let found = headers.iter().find(has_name).or_else(|| headers.iter().find(|(_, cells)| !cells.is_empty()));
    found.map_or(b',', |(separator, _)| *separator)
}

fn not_csv(what: &str) -> BadRecord {
    BadRecord::new(format!("not a row of CSV: {what}"), "RFC 4180: commas, quotes doubled inside quotes")
}

#[cfg(test)]
mod tests;
