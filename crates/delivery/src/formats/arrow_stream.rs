//! Reads Arrow IPC streams, in which any byte may be wrong.
//!
//! The crate has no codec, so a compressed stream is an error. A batch takes no more memory than the bytes received
//! for it.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_ipc::reader::{StreamDecoder, StreamReader};
use arrow_ipc::root_as_message;
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

/// An Arrow IPC stream whose bytes come in parts, like the body of a request.
///
/// After an error, do not use the stream again. It keeps the bytes of an incomplete message, and the dictionaries. It
/// refuses two things that the format allows, because a few bytes could take much memory:
///
/// - Overlapping buffers of a message, because each buffer may be copied.
/// - A dictionary that is extended, because each extension copies it.
#[derive(Debug, Default)]
pub struct ArrowStream {
    decoder: StreamDecoder,
    /// The bytes of a message that is not complete.
    begun: Vec<u8>,
    /// How many bytes must have come before the message is looked at again.
    wanted: usize,
}

impl ArrowStream {
    /// The batches that are complete with this part.
    ///
    /// # Errors
    /// The bytes are not such a stream, or an array in it is broken.
    pub fn read(&mut self, part: &[u8]) -> Result<Vec<RecordBatch>, BadRecord> {
        self.begun.extend_from_slice(part);
        let (mut found, mut start) = (Vec::new(), 0);
        while self.begun.len() - start >= self.wanted {
            match extent_of(&self.begun[start..])? {
                Extent::AtLeast(size) => self.wanted = size,
                Extent::Whole(size) => {
                    let mut message = self.begun[start..start + size].into();
                    (start, self.wanted) = (start + size, 0);
                    let decoder = &mut self.decoder;
                    caught(|| {
                        // A message without a body is decoded with the next one.
                        while let Some(batch) = decoder.decode(&mut message)? {
                            found.push(batch);
                        }
                        Ok(())
                    })?;
                }
            }
        }
        self.begun.drain(..start);
        Ok(found)
    }

    /// The names and types of its columns, once they have come.
    #[must_use]
    pub fn schema(&self) -> Option<SchemaRef> {
        self.decoder.schema()
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// It ends in the middle, or has not begun.
    pub fn end(&mut self) -> Result<(), BadRecord> {
        if !self.begun.is_empty() {
            return Err(not_a_stream(&"it ends in the middle"));
        }
        caught(|| self.decoder.finish())?;
        self.schema().map(|_| ()).ok_or_else(|| not_a_stream(&"it has no schema"))
    }
}

/// The size of the first message, as far as the bytes tell.
enum Extent {
    /// The message is complete. The number is its size.
    Whole(usize),
    /// The message is not complete. It has at least this size.
    AtLeast(usize),
}

/// Measures the first message. A message is a mark, the length of the header, the header, and the body.
fn extent_of(bytes: &[u8]) -> Result<Extent, BadRecord> {
    let word = |at: usize| bytes.get(at..at + 4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    let prefix = if word(0) == Some(u32::MAX) { 8 } else { 4 }; // an old writer leaves the mark out
    let Some(header_size) = word(prefix - 4) else { return Ok(Extent::AtLeast(bytes.len().max(3) + 1)) };
    if header_size == 0 {
        return Ok(Extent::Whole(prefix)); // the end
    }
    let end = prefix + header_size as usize;
    let Some(header) = bytes.get(prefix..end) else { return Ok(Extent::AtLeast(end)) };
    let message = root_as_message(header).map_err(|error| not_a_stream(&error))?;
    let dictionary = message.header_as_dictionary_batch();
    if dictionary.is_some_and(|it| it.isDelta()) {
        return Err(not_a_stream(&"it extends a dictionary: send a new one, or none"));
    }
    let batch = message.header_as_record_batch().or_else(|| dictionary?.data());
    let lengths = batch.and_then(|it| it.buffers()).into_iter().flatten().map(arrow_ipc::Buffer::length);
    let used = lengths.fold(0_i64, |sum, length| sum.saturating_add(length.max(0)));
    if message.bodyLength() < used {
        return Err(not_a_stream(&"its buffers are longer than the message that has them"));
    }
    let size = usize::try_from(message.bodyLength()).ok().and_then(|body| end.checked_add(body));
    let size = size.ok_or_else(|| not_a_stream(&"a message has a wrong length"))?;
    Ok(if size <= bytes.len() { Extent::Whole(size) } else { Extent::AtLeast(size) })
}

/// Whether a stream of this schema has dictionaries. The reader keeps dictionaries until the end of the stream.
#[must_use]
pub fn has_dictionaries(schema: &Schema) -> bool {
    schema.flattened_fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..)))
}

/// Turns a panic of the reader into an error. The reader panics if a stream breaks some rules of the format, such as
/// the length of a buffer of offsets.
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
        assert!(cut_off.end().unwrap_err().reason.contains("ends in the middle"));
        assert!(ArrowStream::default().end().unwrap_err().reason.contains("it has no schema"));
    }

    /// The first message of these bytes, and the bytes after it.
    fn message(bytes: &[u8]) -> (&[u8], &[u8]) {
        let Ok(Extent::Whole(size)) = extent_of(bytes) else { panic!("it is there") };
        bytes.split_at(size)
    }

    #[test]
    fn a_message_whose_buffers_overlap_is_refused() {
        let mut bytes = stream(&[&["a", "b", "c"]]);
        let (schema, rest) = message(&bytes);
        let (batch, end) = message(rest);
        assert_eq!((batch.len() + end.len(), end.len()), (rest.len(), 8));
        let header = root_as_message(&batch[8..]).unwrap().header_as_record_batch().unwrap();
        let lengths: Vec<i64> = header.buffers().unwrap().iter().map(arrow_ipc::Buffer::length).collect();
        let place = batch.windows(8).position(|it| it == lengths[1].to_le_bytes()).unwrap() + schema.len();
        bytes[place..place + 8].copy_from_slice(&(1_i64 << 20).to_le_bytes());
        let refused = ArrowStream::default().read(&bytes).unwrap_err();
        assert!(refused.reason.contains("its buffers are longer"), "{}", refused.reason);
    }

    #[test]
    fn a_message_that_comes_in_many_parts_is_looked_at_once() {
        let ids = vec!["an id"; 10_000];
        let bytes = stream(&[&ids]);
        let (schema, _) = message(&bytes);
        let mut stream = ArrowStream::default();
        stream.read(&bytes[..schema.len() + 1_000]).unwrap();
        assert!(stream.wanted > 100_000, "{}", stream.wanted);
        assert_eq!(stream.read(&bytes[schema.len() + 1_000..]).unwrap()[0].num_rows(), ids.len());
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
