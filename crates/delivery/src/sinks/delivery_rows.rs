//! Deliveries as an Arrow record batch, for sinks that take many at a time.
//!
//! | column | type | |
//! |---|---|---|
//! | `seq` | int64 | the number of the message in its store |
//! | `id`, `key` | text | the name of the message; a key may be null |
//! | `due_ms` | int64 | when it is due, in milliseconds since 1970 |
//! | `payload`, `is_json` | bytes, boolean | the payload, and whether it is JSON |
//! | `delivered_at_ms`, `lateness_us` | int64 | when the message is sent, and how late |
//! | `attempt` | uint32 | from 1 |
//! | `redelivered` | boolean | whether it may have arrived before: a send had no answer, or the process ended |
//! | `digest` | 16 bytes | by which a destination knows the message, whatever store it comes from |

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_schema::{Field, Schema};

use crate::message::incoming::Digest;
use crate::sinks::Delivery;

/// Makes a row for each delivery, in the same order. O(bytes).
#[must_use]
pub fn delivery_rows(deliveries: &[Delivery]) -> RecordBatch {
    let all = || deliveries.iter();
    let numbers =
        |value: fn(&Delivery) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(all().map(value))) };
    let flags = |value: fn(&Delivery) -> bool| -> ArrayRef {
        Arc::new(BooleanArray::from(all().map(value).collect::<Vec<_>>()))
    };
    let mut digests = FixedSizeBinaryBuilder::with_capacity(deliveries.len(), 16);
    for it in deliveries {
        digests.append_value(Digest::of_body(&it.body).0).expect("a digest has 16 bytes");
    }
    let columns: [(&str, ArrayRef); 11] = [
        ("seq", numbers(|it| it.seq)),
        ("id", Arc::new(StringArray::from_iter_values(all().map(|it| it.body.id())))),
        ("key", Arc::new(all().map(|it| it.body.key()).collect::<StringArray>())),
        ("due_ms", numbers(|it| it.due_ms)),
        ("payload", Arc::new(BinaryArray::from_iter_values(all().map(|it| it.body.payload())))),
        ("is_json", flags(|it| it.body.is_json())),
        ("delivered_at_ms", numbers(|it| it.delivered_at_ms)),
        ("lateness_us", numbers(|it| it.lateness_us)),
        ("attempt", Arc::new(UInt32Array::from_iter_values(all().map(|it| it.attempt)))),
        ("redelivered", flags(|it| it.redelivered)),
        ("digest", Arc::new(digests.finish())),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), *name == "key")).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("the columns are as long as the deliveries")
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::Int64Type;

    use super::*;
    use crate::message::{Body, Message};

    #[test]
    fn each_delivery_is_a_row_and_only_a_key_may_be_missing() {
        let one = |key: Option<&str>, payload: &[u8], is_json, seq| {
            let message = Message::from_parts(Body::new(key, "é", payload, is_json), 1, None);
            Delivery::from_parts(message, seq, 3, 2_000, 4, is_json)
        };
        let rows = delivery_rows(&[one(Some("k"), b"1.50", true, 7), one(None, b"\xff", false, 8)]);
        assert_eq!((rows.num_rows(), rows.num_columns()), (2, 11));
        let column = |name| rows.column_by_name(name).unwrap();
        assert_eq!(column("seq").as_primitive::<Int64Type>().values(), &[7, 8]);
        assert_eq!(column("id").as_string::<i32>().value(1), "é");
        assert_eq!(column("key").as_string::<i32>().iter().collect::<Vec<_>>(), [Some("k"), None]);
        assert_eq!(column("payload").as_binary::<i32>().value(0), b"1.50");
        assert_eq!(column("is_json").as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(false)]);
        assert_eq!(column("digest").as_fixed_size_binary().value(0), Digest::of(Some("k"), "é").0);
        assert_eq!(delivery_rows(&[]).num_rows(), 0);
    }
}
