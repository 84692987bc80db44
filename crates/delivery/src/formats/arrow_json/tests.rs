use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int32Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, DictionaryArray, DurationMillisecondArray,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int32Array, LargeStringArray, NullArray, RunArray,
    StringArray, StringViewArray, StructArray, Time32SecondArray, Time64MicrosecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field};

use super::*;

const MAX: usize = 1 << 20;

fn json(array: &dyn Array, at: usize) -> Result<String, String> {
    let mut out = Vec::new();
    write_json(&mut out, array, at, MAX).map_err(|unfit| unfit.why)?;
    Ok(String::from_utf8(out).unwrap())
}

fn decimals(unscaled: i128, scale: i8) -> Decimal128Array {
    Decimal128Array::from(vec![unscaled]).with_precision_and_scale(38, scale).unwrap()
}

#[test]
fn values_have_a_form_in_json__d1() {
    let seconds = |zone: &str| TimestampSecondArray::from(vec![1]).with_timezone(zone);
    let cases: Vec<(ArrayRef, &str)> = vec![
        (Arc::new(BooleanArray::from(vec![true])), "true"),
        (Arc::new(Int8Array::from(vec![-1])), "-1"),
        (Arc::new(UInt64Array::from(vec![u64::MAX])), "18446744073709551615"),
        (Arc::new(Float32Array::from(vec![1.5])), "1.5"),
        (Arc::new(Float64Array::from(vec![1e16])), "1e16"),
        (Arc::new(StringArray::from(vec!["é\n"])), "\"é\\n\""),
        (Arc::new(LargeStringArray::from(vec!["a"])), "\"a\""),
        (Arc::new(StringViewArray::from(vec!["a"])), "\"a\""),
        (Arc::new(BinaryArray::from(vec![&b"\xff\x00"[..]])), "\"/wA=\""),
        (Arc::new(FixedSizeBinaryArray::try_from_iter([[0xff_u8, 0]].into_iter()).unwrap()), "\"/wA=\""),
        (Arc::new(decimals(-150, 2)), "-1.50"),
        (Arc::new(decimals(-5, 2)), "-0.05"),
        (Arc::new(decimals(5, 0)), "5"),
        (Arc::new(decimals(150, -3)), "150000"),
        (Arc::new(decimals(1, 7)), "0.0000001"),
        (Arc::new(decimals(1, 6)), "0.000001"),
        (Arc::new(Date32Array::from(vec![20_484])), "\"2026-01-31\""),
        (Arc::new(Date64Array::from(vec![20_484 * 86_400_000])), "\"2026-01-31\""),
        (Arc::new(Time32SecondArray::from(vec![28_801])), "\"08:00:01\""),
        (Arc::new(Time64MicrosecondArray::from(vec![28_801_000_005])), "\"08:00:01.000005\""),
        (Arc::new(TimestampNanosecondArray::from(vec![1])), "\"1970-01-01T00:00:00.000000001\""),
        (Arc::new(TimestampNanosecondArray::from(vec![-1])), "\"1969-12-31T23:59:59.999999999\""),
        (Arc::new(seconds("Europe/Berlin")), "\"1970-01-01T00:00:01Z\""),
        (Arc::new(seconds("Mars/Phobos")), "\"1970-01-01T00:00:01Z\""),
        (Arc::new(NullArray::new(1)), "null"),
        (Arc::new(vec!["a"].into_iter().collect::<DictionaryArray<Int8Type>>()), "\"a\""),
        (Arc::new(vec!["a"].into_iter().collect::<RunArray<Int32Type>>()), "\"a\""),
    ];
    for (array, text) in cases {
        assert_eq!(json(&array, 0).as_deref(), Ok(text), "{}", array.data_type());
    }
}

#[test]
fn a_null_is_null_also_behind_a_dictionary_and_in_a_list__d1() {
    let dictionary: DictionaryArray<Int8Type> = vec![Some("a"), None].into_iter().collect();
    assert!(is_null(&dictionary, 1) && !is_null(&dictionary, 0));
    let null_value = DictionaryArray::new(Int8Array::from(vec![0]), Arc::new(StringArray::from(vec![None::<&str>])));
    assert!(is_null(&null_value, 0));
    let run: RunArray<Int32Type> = vec![Some("a"), None, None].into_iter().collect();
    assert!(!is_null(&run, 0) && is_null(&run, 2));
    assert!(is_null(&NullArray::new(1), 0));

    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(1), None, Some(2)]);
    lists.append_value([]);
    lists.append_null();
    let lists = lists.finish();
    assert_eq!([0, 1, 2].map(|at| json(&lists, at).unwrap()), ["[1,null,2]", "[]", "null"]);
    assert_eq!(json(&lists.slice(1, 2), 0).unwrap(), "[]");
}

#[test]
fn structs_and_maps_are_objects_with_each_name_once__d1() {
    let one = || Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef;
    let object = |names: [&str; 2]| {
        let fields = names.map(|name| Arc::new(Field::new(name, DataType::Int32, true)));
        StructArray::new(fields.to_vec().into(), vec![one(), one()], None)
    };
    assert_eq!(json(&object(["a", "b\n"]), 0).unwrap(), "{\"a\":1,\"b\\n\":1}");
    assert_eq!(json(&object(["a", "b"]), 1).unwrap(), "{\"a\":null,\"b\":null}");
    assert_eq!(json(&object(["a", "a"]), 0).unwrap_err(), "a name occurs twice in it");

    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for names in [vec!["a", "b"], vec![], vec!["a", "a"]] {
        for name in names {
            maps.keys().append_value(name);
            maps.values().append_value(2);
        }
        maps.append(true).unwrap();
    }
    let maps = maps.finish();
    assert_eq!([0, 1].map(|at| json(&maps, at).unwrap()), ["{\"a\":2,\"b\":2}", "{}"]);
    assert_eq!(json(&maps, 2).unwrap_err(), "a name occurs twice in it");
    let mut numbers = MapBuilder::new(None, Int32Builder::new(), Int32Builder::new());
    numbers.keys().append_value(1);
    numbers.values().append_value(2);
    numbers.append(true).unwrap();
    assert_eq!(json(&numbers.finish(), 0).unwrap_err(), "a map has a key that is not text");
}

#[test]
fn a_value_without_a_form_says_why__d2() {
    let cases: Vec<(ArrayRef, &str)> = vec![
        (Arc::new(Float64Array::from(vec![f64::NAN])), "nan is not finite"),
        (Arc::new(Float64Array::from(vec![f64::NEG_INFINITY])), "-inf is not finite"),
        (Arc::new(DurationMillisecondArray::from(vec![5])), "a duration[ms] has no form in it"),
        (Arc::new(TimestampSecondArray::from(vec![1 << 62])), "a time out of range"),
        (Arc::new(TimestampSecondArray::from(vec![-62_167_219_201])), "a time out of range"),
        (Arc::new(Date32Array::from(vec![i32::MAX])), "a time out of range"),
        (Arc::new(Time32SecondArray::from(vec![86_400])), "a time out of range"),
    ];
    for (array, why) in cases {
        assert_eq!(json(&array, 0).unwrap_err(), why);
    }
    let bad = Unfit::new("nan is not finite", "nan").bad("x");
    assert_eq!(bad.reason, "x can't be JSON: nan is not finite");
}

#[test]
fn a_value_is_shown_with_a_text_in_place_of_each_unfit_part__d2() {
    let mut heights = ListBuilder::new(Float64Builder::new());
    heights.append_value([Some(1.5), Some(f64::NAN)]);
    let columns: [(&str, ArrayRef); 3] = [
        ("city", Arc::new(StringArray::from(vec!["Ulm"]))),
        ("heights", Arc::new(heights.finish())),
        ("took", Arc::new(DurationMillisecondArray::from(vec![5]))),
    ];
    let field = |(name, array): (&str, ArrayRef)| (Arc::new(Field::new(name, array.data_type().clone(), true)), array);
    let row = StructArray::from(columns.map(field).to_vec());
    let mut out = b"row: ".to_vec();
    show_json(&mut out, &row, 0, MAX);
    assert_eq!(String::from_utf8(out).unwrap(), r#"row: {"city":"Ulm","heights":[1.5,"nan"],"took":"5 ms"}"#);
    let mut cut = Vec::new();
    show_json(&mut cut, &row, 0, 8);
    assert_eq!(cut, b"\"a large value\"");
}

#[test]
fn a_small_array_can_not_become_a_huge_text__d12() {
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value(vec![None; MAX / 2 + 1]);
    assert_eq!(json(&lists.finish(), 0).unwrap_err(), "it has more than 524,288 items");
    // A text of 100 kB, a thousand times.
    let text: DictionaryArray<Int8Type> = vec!["x".repeat(100_000).as_str()].into_iter().collect();
    let keys = Int8Array::from(vec![0; 1000]);
    let items = DictionaryArray::new(keys, Arc::clone(text.values()));
    let field = Arc::new(Field::new("item", items.data_type().clone(), true));
    let list = arrow_array::ListArray::new(
        field,
        arrow_array::array::ListArray::from_iter_primitive::<Int8Type, _, _>([Some(vec![Some(0); 1000])])
            .offsets()
            .clone(),
        Arc::new(items),
        None,
    );
    assert_eq!(json(&list, 0).unwrap_err(), "it has more than 1,048,576 bytes");
}
