//! Reads Arrow IPC streams, of which any byte may be wrong.
//!
//! The crate has no codec, so a compressed stream is an error: what a batch takes in memory is what was received.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_ipc::reader::{StreamDecoder, StreamReader};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

use crate::base::display::cut;
use crate::base::error::BadRecord;

/// The batches of an Arrow IPC stream.
///
/// # Errors
/// The bytes are not such a stream, or an array in it is broken.
pub fn batches(stream: &[u8]) -> Result<Vec<RecordBatch>, BadRecord> {
    caught(|| StreamReader::try_new(stream, None).and_then(Iterator::collect))
}

/// An Arrow IPC stream whose bytes come in parts, as the body of a request does.
///
/// After an error it is not used again. It keeps the bytes of one batch that has not come as a whole, and the dictionaries.
#[derive(Debug, Default)]
pub struct ArrowStream(StreamDecoder);

impl ArrowStream {
    /// The batches that are complete with this part.
    ///
    /// # Errors
    /// The bytes are not such a stream, or an array in it is broken.
    pub fn read(&mut self, part: &[u8]) -> Result<Vec<RecordBatch>, BadRecord> {
        let mut part = part.into();
        caught(|| {
            let mut found = Vec::new();
            while let Some(batch) = self.0.decode(&mut part)? {
                found.push(batch);
            }
            Ok(found)
        })
    }

    /// The names and types of its columns, once they have come.
    #[must_use]
    pub fn schema(&self) -> Option<SchemaRef> {
        self.0.schema()
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// It ends in the middle, or has not begun.
    pub fn end(&mut self) -> Result<(), BadRecord> {
        caught(|| self.0.finish())?;
        self.schema().map(|_| ()).ok_or_else(|| not_a_stream(&"it has no schema"))
    }
}

/// Whether a stream of this schema has dictionaries, which it keeps until its end.
#[must_use]
pub fn has_dictionaries(schema: &Schema) -> bool {
    schema.flattened_fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..)))
}

/// The reader asserts some things that a stream should keep, such as the length of a buffer of offsets.
fn caught<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, BadRecord> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(found) => found.map_err(|error| not_a_stream(&error)),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, StringArray};
    use arrow_ipc::writer::StreamWriter;
    use arrow_schema::Field;

    use super::*;

    fn stream(rows: &[&[&str]]) -> Vec<u8> {
        let fields = vec![Field::new("id", DataType::Utf8, false), Field::new("due", DataType::Int64, false)];
        let schema = Arc::new(Schema::new(fields));
        let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
        for ids in rows {
            let due = Int64Array::from(vec![1_700_000_000_000; ids.len()]);
            let ids = StringArray::from(ids.to_vec());
            writer
                .write(&RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(ids), Arc::new(due)]).unwrap())
                .unwrap();
        }
        writer.into_inner().unwrap()
    }

    #[test]
    fn a_stream_in_parts_of_any_size_gives_the_same_batches() {
        let bytes = stream(&[&["a", "b"], &[], &["c"]]);
        let whole = batches(&bytes).unwrap();
        for size in [1, 7, 64, bytes.len()] {
            let mut stream = ArrowStream::default();
            let found: Vec<_> = bytes.chunks(size).flat_map(|part| stream.read(part).unwrap()).collect();
            stream.end().unwrap();
            assert_eq!(found, whole, "in parts of {size}");
            assert_eq!(stream.schema().unwrap().field(1).name(), "due");
        }
    }

    #[test]
    fn a_stream_that_ends_in_the_middle_or_is_none_is_an_error() {
        let bytes = stream(&[&["a"]]);
        let mut cut_off = ArrowStream::default();
        assert!(cut_off.read(&bytes[..bytes.len() - 20]).unwrap().is_empty());
        assert!(cut_off.end().unwrap_err().reason.contains("End of Stream"));
        assert!(ArrowStream::default().end().unwrap_err().reason.contains("it has no schema"));
    }

    #[test]
    fn dictionaries_are_found_at_any_depth() {
        let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let of = |kind: &DataType| Schema::new(vec![Field::new("payload", kind.clone(), true)]);
        let list = |kind: &DataType| DataType::List(Arc::new(Field::new("item", kind.clone(), true)));
        assert!(has_dictionaries(&of(&words)) && has_dictionaries(&of(&list(&words))));
        assert!(!has_dictionaries(&of(&list(&DataType::Utf8))));
    }

    #[test]
    fn a_length_that_is_too_large_takes_no_memory() {
        let mut stream = ArrowStream::default();
        let most = [&[0xff_u8; 4][..], &0x7fff_ffff_u32.to_le_bytes(), b"some bytes"].concat();
        assert!(stream.read(&most).unwrap().is_empty());
        stream.end().unwrap_err();
    }
}
