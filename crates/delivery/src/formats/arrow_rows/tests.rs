use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    BinaryArray, BooleanArray, Date32Array, Date64Array, DictionaryArray, DurationMillisecondArray, Float32Array,
    Float64Array, Int32Array, Int64Array, LargeStringArray, NullArray, StringArray, StringViewArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow_ipc::writer::StreamWriter;

use super::*;
use crate::base::times::MAX_DUE_MS;
use crate::formats::arrow_stream::batches;
use crate::message::columns::Columns as Names;
use crate::message::{Body, Cancel, MAX_PAYLOAD, Message};

const DUE_MS: i64 = 1_790_000_000_000;

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let columns = columns.iter().map(|(name, array)| (*name, Arc::clone(array), true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn items_of(batch: &RecordBatch, names: Names) -> Vec<Parsed> {
    let schema = Schema::new(names, MAX_PAYLOAD);
    let rows = ArrowRows {
        source: "rows".into(),
        schema: &schema,
        now_ns: Some(0),
        keeps_origin: true,
        as_bytes: &[],
        fault: None,
    };
    rows.read(batch, 1).collect()
}

fn texts(texts: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

/// A row with an id, a due time and these columns.
fn only(columns: &[(&str, ArrayRef)]) -> Parsed {
    let mut all: Vec<(&str, ArrayRef)> =
        vec![("id", texts(&[Some("a")])), ("due", Arc::new(Int64Array::from(vec![DUE_MS])))];
    for (name, array) in columns {
        all.retain(|(other, _)| other != name);
        all.push((name, Arc::clone(array)));
    }
    items_of(&batch(&all), Names::default()).remove(0)
}

fn message(columns: &[(&str, ArrayRef)]) -> Message {
    match only(columns) {
        Parsed::Message(incoming) => incoming.message,
        other => panic!("{other:?}"),
    }
}

fn reason(columns: &[(&str, ArrayRef)]) -> String {
    match only(columns) {
        Parsed::Bad(bad, _) => bad.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_row_is_a_message_and_a_null_is_absent__d1() {
    let due = TimestampMillisecondArray::from(vec![Some(5), Some(6), None, None]).with_timezone("UTC");
    let given = batch(&[
        ("id", texts(&[Some("a"), Some("b"), Some("c"), Some("d")])),
        ("key", texts(&[Some("k"), None, None, None])),
        ("due", Arc::new(due)),
        ("delay_ms", Arc::new(Float64Array::from(vec![None, None, Some(1.5), None]))),
        ("op", texts(&[None, None, None, Some("cancel")])),
        ("payload", texts(&[Some("{\"x\":  1.50}"), None, Some("text"), None])),
    ]);
    let found = items_of(&given, Names::default());
    let [Parsed::Message(a), Parsed::Message(b), Parsed::Message(c), Parsed::Cancel(d, _)] = &found[..] else {
        panic!("{found:?}")
    };
    let expected = |key, id, payload: &[u8], due_ms, delay_ms| Message {
        body: Body::new(key, id, payload, true),
        due_ms,
        delay_ms,
    };
    assert_eq!(a.message, expected(Some("k"), "a", b"{\"x\":  1.50}", 5, None));
    assert_eq!(b.message, expected(None, "b", b"{}", 6, None));
    assert_eq!(c.message, expected(None, "c", b"\"text\"", 2, Some(1.5)));
    assert_eq!(*d, Cancel { id: "d".into(), key: None, keep_days: 0 });
    assert_eq!(b.origin, Some(Origin { source: "rows".into(), line: 2, record: None }));
}

#[test]
fn text_of_any_type_is_text_and_nothing_else_is__d1() {
    let dictionary: DictionaryArray<Int8Type> = vec!["é"].into_iter().collect();
    let all: [ArrayRef; 4] = [
        texts(&[Some("é")]),
        Arc::new(LargeStringArray::from(vec!["é"])),
        Arc::new(StringViewArray::from(vec!["é"])),
        Arc::new(dictionary),
    ];
    for array in all {
        let found = message(&[("id", Arc::clone(&array)), ("key", Arc::clone(&array)), ("payload", array)]);
        assert_eq!((found.body.id(), found.body.key()), ("é", Some("é")));
        assert_eq!(found.body.payload(), "\"é\"".as_bytes());
    }
    let others: [ArrayRef; 5] = [
        Arc::new(Int32Array::from(vec![7])),
        Arc::new(Float64Array::from(vec![1.5])),
        Arc::new(BooleanArray::from(vec![true])),
        Arc::new(BinaryArray::from(vec![&b"a"[..]])),
        Arc::new(DurationMillisecondArray::from(vec![5])),
    ];
    for array in others {
        assert_eq!(reason(&[("id", Arc::clone(&array))]), "id is not text");
        assert_eq!(reason(&[("key", Arc::clone(&array))]), "key is not text");
        assert_eq!(reason(&[("payload_base64", Arc::clone(&array))]), "payload_base64 is not base64");
        assert_eq!(reason(&[("op", array)]), "op is not known");
    }
    assert_eq!(reason(&[("id", Arc::new(NullArray::new(1)))]), "id is missing");
}

#[test]
fn a_timestamp_is_an_instant_rounded_up_to_the_millisecond__d3() {
    let micro = |value| Arc::new(TimestampMicrosecondArray::from(vec![value]).with_timezone("UTC")) as ArrayRef;
    let nano = |value| Arc::new(TimestampNanosecondArray::from(vec![value]).with_timezone("+01:30")) as ArrayRef;
    let second = |value| Arc::new(TimestampSecondArray::from(vec![value]).with_timezone("Mars/Phobos")) as ArrayRef;
    for (due, due_ms) in [
        (second(5), 5000),
        (micro(5000), 5),
        (micro(5001), 6),
        (nano(5_000_000), 5),
        (nano(5_000_001), 6),
        (nano(0), 0),
        (micro(MAX_DUE_MS * 1000), MAX_DUE_MS),
    ] {
        assert_eq!(message(&[("due", due)]).due_ms, due_ms);
    }
    for due in [second(1 << 62), nano(i64::MIN), micro(MAX_DUE_MS * 1000 + 1)] {
        assert_eq!(reason(&[("due", due)]), "due is out of range");
    }
}

#[test]
fn integers_and_digits_are_epoch_milliseconds_and_other_values_say_why__d1() {
    let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![DUE_MS as u64]));
    for due in [unsigned, texts(&[Some("1790000000000")]), texts(&[Some("2026-09-21T14:13:20Z")])] {
        assert_eq!(message(&[("due", due)]).due_ms, DUE_MS);
    }
    let cases: Vec<(ArrayRef, &str)> = vec![
        (Arc::new(TimestampMicrosecondArray::from(vec![0])), "due has no zone: '1970-01-01T00:00:00.000000'"),
        (Arc::new(TimestampSecondArray::from(vec![1 << 62])), "due is not a time: '<value out of range: "),
        (Arc::new(Int64Array::from(vec![5])), "due is 5, which looks like seconds"),
        (texts(&[Some("5")]), "due is 5, which looks like seconds"),
        (Arc::new(Int64Array::from(vec![-1])), "due is out of range"),
        (Arc::new(UInt64Array::from(vec![u64::MAX])), "due is 18446744073709551615, which looks like nanoseconds"),
        (Arc::new(Float64Array::from(vec![5.0])), "due is 5, which looks like seconds"),
        (Arc::new(BinaryArray::from(vec![&b"5"[..]])), "due is neither"),
        (Arc::new(Date32Array::from(vec![20_484])), "due is a date without a time of day: '2026-01-31'"),
        (Arc::new(Date64Array::from(vec![20_484 * 86_400_000])), "due is a date without a time of day: '2026-01-31'"),
        (Arc::new(Date32Array::from(vec![i32::MAX])), "due is neither"),
        (texts(&[Some("2026-01-31")]), "due is a date without a time of day: '2026-01-31'"),
        (texts(&[Some("soon")]), "due is not a time"),
        (Arc::new(NullArray::new(1)), "due is missing"),
    ];
    for (due, why) in cases {
        let found = reason(&[("due", due)]);
        assert!(found.starts_with(why), "{found}");
    }
    let nothing: ArrayRef = Arc::new(NullArray::new(1));
    let float = Arc::new(Float32Array::from(vec![1.5]));
    assert_eq!(message(&[("due", Arc::clone(&nothing)), ("delay_ms", float)]).due_ms, 2);
    let nan = Arc::new(Float64Array::from(vec![f64::NAN]));
    assert_eq!(reason(&[("due", nothing), ("delay_ms", nan)]), "delay_ms is not a number in range");
}

#[test]
fn a_payload_is_json_text_or_bytes_and_else_the_other_columns__d1() {
    for (cell, kept) in [
        (&b"{\"b\" : 1}"[..], &b"{\"b\" : 1}"[..]),
        (b" 1.50 ", b"1.50"),
        (b"[1,\r\n2]", b"[1,  2]"),
        (b"NaN", b"\"NaN\""),
        (b"", b"\"\""),
    ] {
        let body = message(&[("payload", Arc::new(BinaryArray::from(vec![cell])))]).body;
        assert_eq!((body.payload(), body.is_json()), (kept, true));
    }
    let body = message(&[("payload", Arc::new(BinaryArray::from(vec![&b"\xff\x00"[..]])))]).body;
    assert_eq!((body.payload(), body.is_json()), (&b"\xff\x00"[..], false));
    assert_eq!(message(&[("payload", Arc::new(Int32Array::from(vec![7])))]).body.payload(), b"7");

    let x = || Arc::new(Int32Array::from(vec![Some(7)])) as ArrayRef;
    assert_eq!(message(&[("x", x()), ("y", texts(&[Some("1.50")]))]).body.payload(), b"{\"x\":7,\"y\":\"1.50\"}");
    assert_eq!(message(&[("x", Arc::new(NullArray::new(1)))]).body.payload(), b"{}");
    assert_eq!(reason(&[("paylod", x())]), "'paylod' is not a field: payload is probably meant");
    assert_eq!(reason(&[("payload", x()), ("x", x())]), "fields beside the payload: x");
    let deep = "[".repeat(100_000);
    assert_eq!(reason(&[("payload", texts(&[Some(&deep)]))]), "payload can't be JSON: the JSON is nested too deep");
    assert_eq!(reason(&[("x", Arc::new(Float64Array::from(vec![f64::NAN])))]), "x can't be JSON: nan is not finite");
}

#[test]
fn with_a_schema_that_can_not_be_used_every_row_says_so__d2() {
    let two = || texts(&[Some("a"), Some("b")]);
    let some = |name: &str| Some(name.to_owned());
    for (columns, names, why) in [
        (vec![("name", two())], Names::default(), "the schema has no column id, due"),
        (
            vec![("id", two())],
            Names { payload: some("body"), ..Names::default() },
            "the schema has no column due, body",
        ),
        (vec![("id", two()), ("x", two()), ("x", two())], Names::default(), "the schema names a column twice"),
    ] {
        let found = items_of(&batch(&columns), names);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|item| matches!(item, Parsed::Bad(bad, _) if bad.reason == why)), "{found:?}");
    }
}

#[test]
fn a_dead_letter_shows_the_row_as_a_line_of_json__d2() {
    let due = TimestampMicrosecondArray::from(vec![Some(5001), None]).with_timezone("UTC");
    let given = batch(&[
        ("id", texts(&[Some("a"), None])),
        ("due", Arc::new(due)),
        ("payload", Arc::new(BinaryArray::from(vec![Some(&b"\xff"[..]), Some(b"{\"x\": 1.50}")]))),
        ("x", Arc::new(Float64Array::from(vec![Some(f64::NAN), None]))),
    ]);
    let shown = |given: &RecordBatch| -> Vec<String> {
        let found = items_of(given, Names::default());
        let records = found.into_iter().map(|item| match item {
            Parsed::Bad(_, origin) => String::from_utf8(origin.record().to_vec()).unwrap(),
            other => panic!("{other:?}"),
        });
        records.collect()
    };
    let lines = shown(&given);
    assert_eq!(
        lines[0],
        "{\"id\":\"a\",\"due\":\"1970-01-01T00:00:00.005001Z\",\"payload_base64\":\"/w==\",\"x\":\"nan\"}"
    );
    assert_eq!(lines[1], "{\"payload\":{\"x\": 1.50}}");
    let twice = batch(&[("x", texts(&[Some("a")])), ("x", Arc::new(Int32Array::from(vec![1])))]);
    assert_eq!(shown(&twice), ["{\"x\":\"a\",\"x again\":1}"]);
    let huge = "é".repeat(2 * MAX_PAYLOAD);
    let cut = &shown(&batch(&[("id", texts(&[Some("a")])), ("due", texts(&[Some(&huge)]))]))[0];
    assert!(cut.starts_with("{\"id\":\"a\",\"due\":") && (KEPT - 1..=KEPT).contains(&cut.len()), "{}", cut.len());
}

#[test]
fn a_stream_gives_its_batches_or_says_why_not__d2() {
    let given = batch(&[("id", texts(&[Some("a")])), ("due", texts(&[Some("soon")]))]);
    let mut writer = StreamWriter::try_new(Vec::new(), given.schema_ref()).unwrap();
    writer.write(&given).unwrap();
    writer.write(&given).unwrap();
    let bytes = writer.into_inner().unwrap();
    assert_eq!(batches(&bytes).unwrap(), [given.clone(), given]);
    for broken in [&b""[..], b"oops", &bytes[..50]] {
        assert!(batches(broken).unwrap_err().reason.starts_with("the Arrow stream can't be read: "));
    }
}

#[test]
fn text_that_is_not_utf_8_comes_as_bytes_and_costs_its_row__d2() {
    let schema = Schema::new(Names::default(), MAX_PAYLOAD);
    let bytes = |cells: &[Option<&[u8]>]| Arc::new(BinaryArray::from(cells.to_vec())) as ArrayRef;
    let given = batch(&[
        ("id", bytes(&[Some(b"a"), Some(b"\xff"), Some(b"c"), None])),
        ("due", Arc::new(Int64Array::from(vec![DUE_MS; 4]))),
        ("payload", bytes(&[Some(b"\xff"), Some(b"1"), None, None])),
    ]);
    let as_bytes = ["id".to_owned(), "payload".to_owned()];
    let mut rows = ArrowRows {
        source: "rows".into(),
        schema: &schema,
        now_ns: Some(0),
        keeps_origin: false,
        as_bytes: &as_bytes,
        fault: None,
    };
    let found: Vec<Parsed> = rows.read(&given, 1).collect();
    let [Parsed::Message(a), Parsed::Bad(b, _), Parsed::Message(c), Parsed::Bad(d, _)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((a.message.body.id(), a.message.body.payload()), ("a", &b"\xff"[..]));
    assert_eq!((b.reason.as_str(), c.message.body.id(), d.reason.as_str()), ("id is not UTF-8", "c", "id is missing"));
    let fault = BadRecord::new("the column x is broken", "arrays that are valid");
    rows.fault = Some(&fault);
    assert!(rows.read(&given, 1).all(|item| matches!(item, Parsed::Bad(bad, _) if bad == fault)));
}

#[test]
fn events_and_what_waits_for_them_come_in_columns__d1_d22() {
    let key = || ("key", texts(&[Some("k")]));
    let mut names = ListBuilder::new(StringBuilder::new());
    names.append_value([Some("paid"), Some("lost")]);
    for until in [Arc::new(names.finish()) as ArrayRef, texts(&[Some("paid lost")])] {
        let found = message(&[key(), ("until_event", until), ("payload", texts(&[Some("1")]))]);
        assert_eq!((&*found.body.until().unwrap().names, found.body.payload()), ("lost paid", &b"1"[..]));
    }
    assert_eq!(message(&[key(), ("until_event", texts(&[None]))]).body.until(), None);
    let event = [
        key(),
        ("op", texts(&[Some("event")])),
        ("event", texts(&[Some("paid")])),
        ("remember_ms", Arc::new(Int64Array::from(vec![5_000]))),
        ("due", Arc::new(Int64Array::from(vec![None]))),
    ];
    let Parsed::Event(event, origin) = only(&event) else { panic!() };
    assert_eq!((&*event.event, event.remember_ms, &*event.payload), ("paid", Some(5_000), &b"null"[..]));
    let record = r#"{"id":"a","key":"k","op":"event","event":"paid","remember_ms":5000}"#;
    assert_eq!(std::str::from_utf8(origin.record()), Ok(record));
}
