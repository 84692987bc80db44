//! Joins the lines of a CSV file into rows, and splits rows into cells, by RFC 4180.
//!
//! The cells are found by `csv-core`, which takes bytes as they come and never fails: it reads `"a"b` as `ab`. So a
//! missing quote could hide rows in a cell. Here such a row is an error, which is found by the size of the cell.
//!
//! - A blank line is no row. A row has at most as many bytes as a record.
//! - A row that can't be read is one error. It has the lines up to the one where that is found; the next row begins with
//!   the line after them. So each byte is read once.
//!
//! Example: the input has the lines `a,"b` and `c,d` and `e"` and `"f"g`. The first three lines are a row with two cells.
//! Line 4 is an error, because text follows a closing quote.

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use memchr::memchr_iter;

use crate::base::display::with_commas;
use crate::base::error::BadRecord;
use crate::formats::lines::Line;

/// A row of the input.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    /// The number of its first line, from 1.
    pub line: u64,
    /// Its bytes without the line end.
    pub data: &'a [u8],
    /// Its cells, or why it can't be read.
    pub cells: Result<&'a [String], BadRecord>,
}

/// The rows of one input.
#[derive(Debug, Default)]
pub(crate) struct CsvSplit {
    max_row: usize,
    /// A name in the header, by which the separator is found.
    needed_name: String,
    /// With its separator, once there is a header.
    reader: Option<(Reader, u8)>,
    /// The number of the first line of the current row.
    line: u64,
    /// The lines of the row.
    data: Vec<u8>,
    is_over: bool,
    cells: Vec<String>,
    /// The current cell, without its quotes, is in the first bytes.
    cell: Vec<u8>,
    cell_size: usize,
    /// Where it begins in `data`.
    cell_start: usize,
}

impl CsvSplit {
    /// `needed_name`: a name that the header must have.
    pub(crate) fn new(max_row: usize, needed_name: &str) -> Self {
        let needed_name = needed_name.to_owned();
        Self { max_row, needed_name, is_over: true, ..Self::default() }
    }

    /// Adds the next line. Returns the row that ends with it, if one does.
    pub(crate) fn add(&mut self, line: &Line<'_>) -> Option<Row<'_>> {
        let is_first = std::mem::take(&mut self.is_over);
        if is_first {
            self.line = line.number;
            self.data.clear();
            self.cells.clear();
        }
        let start = self.data.len();
        self.data.extend_from_slice(line.data);
        let fault = match line.text(self.max_row) {
            Ok(text) if is_first && is_line_end(text.as_bytes()) => {
                self.is_over = true;
                return None;
            }
            Ok(_) if self.data.len() > self.max_row => {
                let allowed = format!("a row of at most {} bytes", with_commas(self.max_row));
                BadRecord::new("a quoted cell does not end", allowed)
            }
            Ok(_) => match self.read(line, start) {
                Ok(false) => return None,
                Ok(true) => return Some(self.row(None)),
                Err(what) => not_csv(&what),
            },
            Err(bad) if is_first => bad,
            Err(_) => {
                let reason = format!("line {} in a quoted cell is too long, or not UTF-8", line.number);
                BadRecord::new(reason, "each line a row, or text")
            }
        };
        Some(self.row(Some(fault)))
    }

    /// The row that the end of the input cuts off, if there is one.
    pub(crate) fn end(&mut self) -> Option<Row<'_>> {
        (!self.is_over).then(|| self.row(Some(not_csv("unexpected end of data"))))
    }

    fn row(&mut self, fault: Option<BadRecord>) -> Row<'_> {
        self.is_over = true;
        (self.cell_size, self.cell_start) = (0, 0);
        if fault.is_some()
            && let Some((reader, _)) = &mut self.reader
        {
            reader.reset();
        }
        let end = self.data.iter().rposition(|byte| !is_line_end(&[*byte])).map_or(0, |at| at + 1);
        Row { line: self.line, data: &self.data[..end], cells: fault.map_or(Ok(&self.cells[..]), Err) }
    }

    /// Reads the cells of a line, which begins here in `data`. Returns whether the row ends with it.
    ///
    /// # Errors
    /// The row is not CSV.
    fn read(&mut self, line: &Line<'_>, mut at: usize) -> Result<bool, String> {
        if !self.data.ends_with(b"\n") {
            self.data.push(b'\n');
        }
        let Self { max_row, needed_name, .. } = self;
        let (reader, separator) = self.reader.get_or_insert_with(|| reader_of(line, *max_row, needed_name));
        while at < self.data.len() {
            let rest = &self.data[at..];
            self.cell.resize(self.cell.len().max(self.cell_size + rest.len()), 0);
            let (result, read, written) = reader.read_field(rest, &mut self.cell[self.cell_size..]);
            at += read;
            self.cell_size += written;
            let ReadFieldResult::Field { record_end } = result else { return Ok(false) };
            let cell = &self.cell[..std::mem::take(&mut self.cell_size)];
            if !is_closed(&self.data[std::mem::replace(&mut self.cell_start, at)..at - 1], cell) {
                return Err(format!("'{}' expected after '\"'", char::from(*separator)));
            }
            self.cells.push(String::from_utf8_lossy(cell).into_owned()); // it is UTF-8, as each line is
            if record_end {
                let is_end = is_line_end(&self.data[at..]);
                return if is_end { Ok(true) } else { Err("new-line character seen in unquoted field".to_owned()) };
            }
        }
        Ok(false)
    }
}

/// Whether a cell ends with its closing quote, if it has quotes. `cell`: what `csv-core` made of these bytes.
fn is_closed(bytes: &[u8], cell: &[u8]) -> bool {
    let size = cell.len() + memchr_iter(b'"', cell).count() + 2;
    !bytes.starts_with(b"\"") || bytes.len() == size && bytes.ends_with(b"\"")
}

/// Whether a line, or the rest of one, is blank.
fn is_line_end(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// With the first separator that makes a cell with the needed name, as a name may contain another separator. If there is
/// none, with the first that separates cells.
fn reader_of(header: &Line<'_>, max_row: usize, needed_name: &str) -> (Reader, u8) {
    let with = |separator: u8| (ReaderBuilder::new().delimiter(separator).build(), separator);
    let cells_of = |separator| {
        let mut split = CsvSplit { reader: Some(with(separator)), ..CsvSplit::new(max_row, needed_name) };
        let cells = split.add(header).and_then(|row| row.cells.ok()).unwrap_or_default();
        if cells.len() > 1 { cells.to_vec() } else { Vec::new() }
    };
    let headers = [b',', b';', b'\t'].map(|separator| (separator, cells_of(separator)));
    let has_name = |(_, cells): &&(u8, Vec<String>)| cells.iter().any(|cell| cell == needed_name);
    let found = headers.iter().find(has_name).or_else(|| headers.iter().find(|(_, cells)| !cells.is_empty()));
    with(found.map_or(b',', |(separator, _)| *separator))
}

fn not_csv(what: &str) -> BadRecord {
    BadRecord::new(format!("not a row of CSV: {what}"), "RFC 4180: commas, quotes doubled inside quotes")
}

#[cfg(test)]
mod tests;
