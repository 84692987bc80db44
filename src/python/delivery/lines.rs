//! `NdjsonLines`: reads lines of NDJSON without the GIL and without a Python object for each.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::delivery::BadRecord;
use crate::delivery::Block;
use crate::delivery::Columns;
use crate::delivery::Item;
use crate::delivery::Schema;
use crate::delivery::store::Letter;
use crate::delivery::{Ndjson, Parsed};

/// How the lines of one input are read: their schema, and the name of the input. `after`: lines up to this one are skipped.
/// `letters`: a line that can't be used becomes a dead letter; otherwise its error is returned.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct NdjsonLines {
    source: Arc<str>,
    schema: Schema,
    after: u64,
    letters: bool,
}

/// What some lines hold.
pub(crate) struct Lines {
    pub(crate) items: Vec<Item>,
    /// For each record in order, what is wrong with it, with its line; nothing where errors become letters.
    pub(crate) faults: Vec<Option<(u64, BadRecord)>>,
}

#[pymethods]
impl NdjsonLines {
    #[new]
    #[pyo3(signature = (source, columns, max_payload, *, after=0, letters=true))]
    fn new(
        source: &str,
        columns: (Option<String>, Option<String>, Option<String>, Option<String>),
        max_payload: usize,
        after: u64,
        letters: bool,
    ) -> Self {
        let (id, key, due, payload) = columns;
        let schema = Schema::new(Columns { id, key, due, payload }, max_payload);
        Self { source: source.into(), schema, after, letters }
    }
}

impl NdjsonLines {
    /// Reads whole lines. `left_out`: bytes of the last one that are not here.
    pub(crate) fn read(&self, bytes: &[u8], first_line: u64, left_out: usize, now_ns: Option<i64>) -> Lines {
        let block = Block { bytes: Arc::<[u8]>::from(bytes), first_line, left_out };
        let reader = Ndjson {
            source: self.source.clone(),
            schema: &self.schema,
            now_ns,
            after: self.after,
            keeps_origin: self.letters,
        };
        let mut found = Lines { items: Vec::new(), faults: Vec::new() };
        for item in reader.read(&block) {
            let (item, fault) = match item {
                Parsed::Message(incoming) => (Some(Item::Put(incoming)), None),
                Parsed::Cancel(cancel) => (Some(Item::Cancel(cancel)), None),
                Parsed::Bad(bad, origin) if self.letters => {
                    let BadRecord { reason, allowed } = bad;
                    let record = origin.record.map_or_else(Vec::new, |record| record.as_bytes().to_vec());
                    let source = origin.source.to_string();
                    (Some(Item::Letter(Letter { source, line: origin.line as i64, reason, allowed, record })), None)
                }
                Parsed::Bad(bad, origin) => (None, Some((origin.line, bad))),
            };
            found.items.extend(item);
            if !self.letters {
                found.faults.push(fault);
            }
        }
        found
    }
}
