use arrow_array::{ArrayRef, Float64Array, Int64Array};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Field;

use super::*;
use crate::formats::arrow_stream::batches;
use crate::formats::ndjson::fields_of;
use crate::message::MAX_PAYLOAD;
use crate::message::columns::Columns;
use crate::message::fields;
use crate::message::incoming::Incoming;

/// A row with a value in these columns, and null in the others.
#[derive(Clone, Copy, Default)]
struct Row<'a> {
    id: Option<&'a str>,
    key: Option<&'a str>,
    due_ms: Option<i64>,
    delay_ms: Option<f64>,
    payload: Option<&'a [u8]>,
    is_json: Option<bool>,
    expires_ms: Option<i64>,
    traceparent: Option<&'a str>,
    destination: Option<&'a str>,
    tenant: Option<&'a str>,
    source: Option<&'a str>,
    line: Option<i64>,
    reason: Option<&'a str>,
    allowed: Option<&'a str>,
    moved_to_ms: Option<i64>,
    again: bool,
}

fn batch(rows: &[Row<'_>]) -> RecordBatch {
    let texts = |of: fn(&Row<'_>) -> Option<String>| Arc::new(rows.iter().map(of).collect::<StringArray>()) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        texts(|row| row.id.map(Into::into)),
        texts(|row| row.key.map(Into::into)),
        Arc::new(rows.iter().map(|row| row.due_ms).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.delay_ms).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|row| row.payload).collect::<BinaryArray>()),
        Arc::new(rows.iter().map(|row| row.is_json).collect::<BooleanArray>()),
        Arc::new(rows.iter().map(|row| row.expires_ms).collect::<Int64Array>()),
        texts(|row| row.traceparent.map(Into::into)),
        texts(|row| row.destination.map(Into::into)),
        texts(|row| row.tenant.map(Into::into)),
        texts(|row| row.source.map(Into::into)),
        Arc::new(rows.iter().map(|row| row.line).collect::<Int64Array>()),
        texts(|row| row.reason.map(Into::into)),
        texts(|row| row.allowed.map(Into::into)),
        Arc::new(rows.iter().map(|row| row.moved_to_ms).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| Some(row.again)).collect::<BooleanArray>()),
    ];
    let fields = COLUMNS.map(|(name, kind, is_nullable)| Field::new(name, kind, is_nullable));
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).unwrap()
}

fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), batches[0].schema_ref()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

const MESSAGE: Row<'static> = Row {
    id: Some("a"),
    key: Some("k"),
    due_ms: Some(5),
    delay_ms: None,
    payload: Some(b"[1]"),
    is_json: Some(true),
    expires_ms: None,
    traceparent: None,
    destination: None,
    tenant: None,
    source: Some("in.ndjson"),
    line: Some(7),
    reason: None,
    allowed: None,
    moved_to_ms: None,
    again: false,
};

fn only(row: Row<'_>) -> Parsed {
    let [item] = read_batch(&batch(&[row]), MAX_PAYLOAD).unwrap().try_into().unwrap();
    item
}

fn read_batch(batch: &RecordBatch, max_payload: usize) -> Result<Vec<Parsed>, BadRecord> {
    let mut found = Vec::new();
    found.extend(read_hand_off(batch, max_payload)?);
    Ok(found)
}

/// The items of an Arrow IPC stream.
fn read_stream(bytes: &[u8], max_payload: usize) -> Result<Vec<Parsed>, BadRecord> {
    let mut found = Vec::new();
    for batch in batches(bytes)? {
        found.extend(read_hand_off(&batch, max_payload)?);
    }
    Ok(found)
}

#[test]
fn another_due_time_and_what_few_messages_have_arrive_as_they_were__s3_d16_d17_d23_d24() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let named = Row { destination: Some("acme"), tenant: Some("zenith"), ..MESSAGE };
    let row = Row { expires_ms: Some(6), traceparent: Some(parent), ..named };
    let Parsed::Message(incoming) = only(row) else { panic!("it is a message") };
    let extras = |it: &Message| {
        let is_of_both = (it.body.destination(), it.body.tenant()) == (Some("acme"), Some("zenith"));
        (it.expires_ms(), it.traceparent().map(String::from), is_of_both)
    };
    assert_eq!(extras(&incoming.message), (Some(6), Some(parent.into()), true));
    let to = Row { id: Some("b"), due_ms: Some(7), ..Row::default() };
    let Parsed::Reschedule(found, _) = only(to) else { panic!("it is a reschedule") };
    assert_eq!(found, Reschedule { id: "b".into(), key: None, due_ms: 7 });
    let origin = || Origin { source: "x".into(), line: 1, record: None };
    let items = [Parsed::Message(incoming), Parsed::Reschedule(found, origin())];
    let again = read_stream(&sent(&items), MAX_PAYLOAD).unwrap();
    let [Parsed::Message(again), Parsed::Reschedule(to, _)] = &again[..] else { panic!("{again:?}") };
    assert_eq!((extras(&again.message), to.due_ms), ((Some(6), Some(parent.into()), true), 7));
    assert!(matches!(only(Row { expires_ms: Some(5), ..MESSAGE }), Parsed::Bad(..)));
    let Parsed::Message(moved) = only(Row { moved_to_ms: Some(9), ..MESSAGE }) else { panic!("it is a message") };
    assert_eq!((moved.message.due_ms, moved.moved_to_ms), (5, Some(9)));
    assert!(matches!(only(Row { moved_to_ms: Some(i64::MAX), ..MESSAGE }), Parsed::Bad(..)));
}

#[test]
fn a_row_is_a_message_a_cancel_or_a_dead_letter__s3() {
    let cancel = Row { id: Some("b"), key: None, ..Row::default() };
    let letter = Row {
        id: None,
        due_ms: None,
        payload: Some(b"oops\xff"),
        reason: Some("why"),
        allowed: Some("what"),
        ..MESSAGE
    };
    let bytes = stream(&[batch(&[MESSAGE, cancel]), batch(&[letter])]);
    let [message, cancel, letter] = read_stream(&bytes, MAX_PAYLOAD).unwrap().try_into().unwrap();

    let Parsed::Message(incoming) = message else { panic!("{message:?}") };
    let expected = Message { body: Body::new(Some("k"), "a", b"[1]", true), due_ms: 5, delay_ms: None };
    assert_eq!(incoming.message, expected);
    assert_eq!(incoming.origin, Some(Origin { source: "in.ndjson".into(), line: 7, record: None }));
    let record = b"{\"id\":\"a\",\"key\":\"k\",\"due\":\"1970-01-01T00:00:00.005Z\",\"payload\":[1]}";
    assert_eq!(&crate::message::record::record_of_incoming(&incoming)[..], record);

    let Parsed::Cancel(cancel, _) = cancel else { panic!("{cancel:?}") };
    assert_eq!(cancel, Cancel { id: "b".into(), key: None, keep_days: 400 });

    let Parsed::Bad(bad, origin) = letter else { panic!("{letter:?}") };
    assert_eq!(bad, BadRecord::new("why", "what"));
    assert_eq!((&*origin.source, origin.line, origin.record()), ("in.ndjson", 7, &b"oops\xff"[..]));
}

#[test]
fn a_delay_and_other_bytes_arrive_as_they_were__s3() {
    let Parsed::Message(incoming) =
        only(Row { delay_ms: Some(1.5), is_json: Some(false), payload: Some(b"\xff"), ..MESSAGE })
    else {
        panic!()
    };
    assert_eq!(incoming.message.delay_ms, Some(1.5));
    assert_eq!((incoming.message.body.payload(), incoming.message.body.is_json()), (&b"\xff"[..], false));
    let Parsed::Message(incoming) =
        only(Row { payload: Some(b""), is_json: None, source: None, line: None, ..MESSAGE })
    else {
        panic!()
    };
    assert_eq!(incoming.message.body.payload(), b"");
    assert_eq!(incoming.origin, Some(Origin { source: "hand-off".into(), line: 0, record: None }));
}

#[test]
fn a_row_that_no_deliverer_can_take_is_a_bad_record__s3() {
    for (row, reason) in [
        (Row { id: None, ..MESSAGE }, "id is missing"),
        (Row { id: Some(""), ..MESSAGE }, "id is empty"),
        (Row { key: Some(""), due_ms: None, ..MESSAGE }, "key is empty"),
        (Row { due_ms: Some(-1), ..MESSAGE }, "due_ms is out of range"),
        (Row { payload: Some(b"[1,]"), ..MESSAGE }, "the payload is not JSON: expected value, at byte 4"),
        (Row { payload: Some(&vec![b'1'; MAX_PAYLOAD + 1]), ..MESSAGE }, "the payload has 1,048,577 bytes"),
    ] {
        let Parsed::Bad(bad, origin) = only(row) else { panic!("{reason}") };
        assert_eq!(bad.reason, reason);
        assert_eq!(origin.record(), row.payload.unwrap());
    }
}

#[test]
fn a_row_that_comes_again_may_have_been_delivered__s4() {
    for again in [false, true] {
        let Parsed::Message(incoming) = only(Row { again, ..MESSAGE }) else { panic!("it is a message") };
        assert_eq!(incoming.redelivered, again);
        assert!(matches!(only(Row { id: Some("b"), again, ..Row::default() }), Parsed::Cancel(..)));
    }
}

/// The stream as a deliverer gets it, without the column `partition`.
fn sent(items: &[Parsed]) -> Vec<u8> {
    let written = write_stream(items);
    let [batch] = batches(&written).unwrap().try_into().unwrap();
    stream(&[batch.project(&(0..COLUMNS.len()).collect::<Vec<_>>()).unwrap()])
}

#[test]
fn what_is_written_has_the_partition_of_each_row__s5() {
    let origin = |line| Origin { source: "x".into(), line, record: None };
    let put = |key, id| {
        Parsed::Message(Incoming::of(Message { body: Body::new(key, id, b"1", true), due_ms: 5, delay_ms: None }))
    };
    let cancel = Cancel { id: "b".into(), key: Some("k".into()), keep_days: 1 };
    let to = Reschedule { id: "c".into(), key: Some("k".into()), due_ms: 7 };
    let items = [
        put(Some("k"), "a"),
        Parsed::Cancel(cancel, origin(1)),
        Parsed::Reschedule(to, origin(2)),
        put(None, "a"),
        Parsed::Cancel(Cancel { id: "a".into(), key: None, keep_days: 1 }, origin(3)),
        Parsed::Bad(BadRecord::new("why", "what"), origin(130)),
    ];
    let written = write_stream(&items);
    let [batch] = batches(&written).unwrap().try_into().unwrap();
    let partitions: &arrow_array::Int32Array = batch.column_by_name("partition").unwrap().as_primitive();
    let (of_key, of_name) = (partition_of_name(Some("k"), "a"), partition_of_name(None, "a"));
    assert_eq!(partitions.values(), &[of_key, of_key, of_key, of_name, of_name, 2].map(i32::from));
    assert_ne!(of_key, of_name);
}

#[test]
fn other_columns_and_other_bytes_are_refused_whole__s3() {
    let other = RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]).unwrap();
    let bad = read_stream(&stream(&[other]), MAX_PAYLOAD).unwrap_err();
    assert_eq!(bad.reason, "the columns are id");
    assert!(bad.allowed.starts_with("those of a hand-off: ['id', 'key', 'due_ms',"), "{bad}");
    let good = stream(&[batch(&[MESSAGE])]);
    for broken in [b"".as_slice(), b"oops", &good[..100], &good[..good.len() - 100]] {
        let bad = read_stream(broken, MAX_PAYLOAD).unwrap_err();
        assert!(bad.reason.starts_with("the Arrow stream can't be read: "), "{bad}");
    }
}

#[test]
fn what_was_read_is_written_as_rows_and_read_back__s3() {
    let origin =
        |record: Option<&[u8]>| Origin { source: "in.csv".into(), line: 4, record: record.map(Bytes::copy_from_slice) };
    let message = |is_json, delay_ms| Message { body: Body::new(Some("k"), "a", b"[1]", is_json), due_ms: 5, delay_ms };
    let cancel = Cancel { id: "b".into(), key: None, keep_days: KEEP_CANCELS_DAYS };
    let given = vec![
        Parsed::Message(Incoming::from_origin(message(true, None), Some(origin(None)))),
        Parsed::Message(Incoming::from_origin(message(false, Some(1.5)), Some(origin(None)))),
        Parsed::Cancel(cancel, origin(None)),
        Parsed::Bad(BadRecord::new("why", "what"), origin(Some(b"\xff"))),
    ];
    let found = read_stream(&sent(&given), MAX_PAYLOAD).unwrap();
    assert_eq!(format!("{found:?}"), format!("{given:?}"));
    assert!(read_stream(&sent(&[]), MAX_PAYLOAD).unwrap().is_empty());
}

#[test]
fn a_recurring_message_is_a_dead_letter_that_says_where_to_put_it__d2_d19_s2() {
    let schema = fields::Schema::new(Columns::default(), MAX_PAYLOAD);
    for (record, written) in [
        (
            r#"{"id":"beat","key":"k","every":60000,"payload":1}"#,
            Some(r#"{"id":"beat","key":"k","every":60000,"payload":1}"#),
        ),
        (r#"{"id":"beat","cron":"30 9 * * MON-FRI","tz":"Europe/Berlin","payload":1}"#, None),
    ] {
        let read = schema.check(&fields_of(record, &schema).unwrap(), Some(1_769_000_000_000_000_000));
        let kept = written.map(|it| Bytes::copy_from_slice(it.as_bytes()));
        let given = [
            Parsed::of(read, true, || Origin { source: "in".into(), line: 3, record: kept.clone() }),
            Parsed::Message(Incoming::of(Message {
                body: Body::new(None, "once", b"1", true),
                due_ms: 5,
                delay_ms: None,
            })),
            Parsed::Cancel(
                Cancel { id: "beat".into(), key: None, keep_days: 400 },
                Origin { source: "in".into(), line: 4, record: None },
            ),
        ];
        let [letter, once, cancel] = read_stream(&sent(&given), MAX_PAYLOAD).unwrap().try_into().unwrap();
        let Parsed::Bad(bad, origin) = letter else { panic!("{letter:?}") };
        assert_eq!(bad.reason, "a recurring message does not go through Spark");
        assert!(bad.allowed.contains("the store of a deliverer, by POST /messages"), "{bad}");
        assert_eq!((&*origin.source, origin.line), ("in", 3));
        let found = std::str::from_utf8(origin.record()).unwrap();
        assert_eq!(
            found,
            written.unwrap_or(
                r#"{"id":"beat","key":null,"payload":1,"cron":"30 9 * * MON-FRI","tz":"Europe/Berlin","missed":"skip"}"#
            )
        );
        assert!(matches!((once, cancel), (Parsed::Message(_), Parsed::Cancel(..))));
    }
}

#[test]
fn an_event_and_what_waits_for_one_are_dead_letters_that_say_where_to_put_them__d2_d22_s2() {
    let schema = fields::Schema::new(Columns::default(), MAX_PAYLOAD);
    for (record, what) in [
        (r#"{"id":"e","key":"k","op":"event","event":"paid"}"#, "an event"),
        (
            r#"{"id":"a","key":"k","due":5000000000000,"until_event":["paid"],"payload":1}"#,
            "a message with until_event",
        ),
    ] {
        let kept = Bytes::copy_from_slice(record.as_bytes());
        let read = schema.check(&fields_of(record, &schema).unwrap(), Some(1_769_000_000_000_000_000));
        let given = [Parsed::of(read, true, || Origin { source: "in".into(), line: 3, record: Some(kept.clone()) })];
        let [letter] = read_stream(&sent(&given), MAX_PAYLOAD).unwrap().try_into().unwrap();
        let Parsed::Bad(bad, origin) = letter else { panic!("{letter:?}") };
        assert_eq!(bad.reason, format!("{what} does not go through Spark"));
        assert!(bad.allowed.contains("the store of a deliverer, by POST /messages"), "{bad}");
        assert_eq!((origin.line, origin.record()), (3, record.as_bytes()));
    }
}
