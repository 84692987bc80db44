//! Reads Arrow IPC streams, of which any byte may be wrong.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;

use crate::error::BadRecord;
use crate::shown::cut;

/// The batches of an Arrow IPC stream.
///
/// # Errors
/// The bytes are not such a stream, or an array in it is broken.
pub fn batches(stream: &[u8]) -> Result<Vec<RecordBatch>, BadRecord> {
    // The reader asserts some things that the stream should keep, such as the length of a buffer of offsets.
    let read = catch_unwind(AssertUnwindSafe(|| StreamReader::try_new(stream, None).and_then(Iterator::collect)));
    match read {
        Ok(batches) => batches.map_err(|error| not_a_stream(&error)),
        Err(_) => Err(not_a_stream(&"a buffer of an array has a wrong length or place")),
    }
}

fn not_a_stream(why: &dyn Display) -> BadRecord {
    let text = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    BadRecord::new(
        format!("the Arrow stream can't be read: {}", cut(&text, 200)),
        "an Arrow IPC stream, not compressed",
    )
}
