//! Reads single values of Arrow arrays. Only the type in the batch tells how to read an array.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, RunEndIndexType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

/// Whether the value is null. A dictionary may also have a null among its own values.
pub(crate) fn is_null(array: &dyn Array, at: usize) -> bool {
    match array.data_type() {
        DataType::Null => true,
        DataType::Dictionary(..) => {
            array.is_null(at) || inner(array, at).is_none_or(|(values, at)| is_null(values, at))
        }
        DataType::RunEndEncoded(..) => inner(array, at).is_none_or(|(values, at)| is_null(values, at)),
        _ => array.is_null(at),
    }
}

/// Where the actual value is, if the array is a dictionary or is run-end encoded.
pub(crate) fn inner(array: &dyn Array, at: usize) -> Option<(&ArrayRef, usize)> {
    fn of_run<R: RunEndIndexType>(array: &dyn Array, at: usize) -> (&ArrayRef, usize) {
        let run = array.as_run::<R>();
        (run.values(), run.get_physical_index(at))
    }
    match array.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            Some((dictionary.values(), usize::try_from(integer(dictionary.keys(), at)?).ok()?))
        }
        DataType::RunEndEncoded(ends, _) => Some(match ends.data_type() {
            DataType::Int16 => of_run::<Int16Type>(array, at),
            DataType::Int32 => of_run::<Int32Type>(array, at),
            _ => of_run::<Int64Type>(array, at),
        }),
        _ => None,
    }
}

/// The value of any type of text.
pub(crate) fn text(array: &dyn Array, at: usize) -> Option<&str> {
    match array.data_type() {
        DataType::Utf8 => Some(array.as_string::<i32>().value(at)),
        DataType::LargeUtf8 => Some(array.as_string::<i64>().value(at)),
        DataType::Utf8View => Some(array.as_string_view().value(at)),
        _ => None,
    }
}

/// The value of any type of bytes.
pub(crate) fn binary(array: &dyn Array, at: usize) -> Option<&[u8]> {
    match array.data_type() {
        DataType::Binary => Some(array.as_binary::<i32>().value(at)),
        DataType::LargeBinary => Some(array.as_binary::<i64>().value(at)),
        DataType::BinaryView => Some(array.as_binary_view().value(at)),
        DataType::FixedSizeBinary(_) => Some(array.as_fixed_size_binary().value(at)),
        _ => None,
    }
}

/// The value of any type of integer.
pub(crate) fn integer(array: &dyn Array, at: usize) -> Option<i128> {
    Some(match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(at).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(at).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(at).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(at).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(at).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(at).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(at).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(at).into(),
        _ => return None,
    })
}

/// The value of any type of float.
pub(crate) fn float(array: &dyn Array, at: usize) -> Option<f64> {
    Some(match array.data_type() {
        DataType::Float16 => array.as_primitive::<Float16Type>().value(at).into(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(at).into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(at),
        _ => return None,
    })
}

/// The digits of any type of decimal: in full, or with an exponent if that is shorter.
pub(crate) fn decimal(array: &dyn Array, at: usize) -> Option<String> {
    let (unscaled, scale) = match array.data_type() {
        DataType::Decimal32(_, scale) => (array.as_primitive::<Decimal32Type>().value(at).to_string(), *scale),
        DataType::Decimal64(_, scale) => (array.as_primitive::<Decimal64Type>().value(at).to_string(), *scale),
        DataType::Decimal128(_, scale) => (array.as_primitive::<Decimal128Type>().value(at).to_string(), *scale),
        DataType::Decimal256(_, scale) => (array.as_primitive::<Decimal256Type>().value(at).to_string(), *scale),
        _ => return None,
    };
    let (sign, digits) = unscaled.strip_prefix('-').map_or(("", &*unscaled), |digits| ("-", digits));
    let (count, scale) = (digits.len() as i64, i64::from(scale));
    let exponent = count - 1 - scale;
    Some(if scale >= 0 && exponent >= -6 {
        match (count - scale, scale) {
            (_, 0) => unscaled,
            (whole @ 1.., _) => format!("{sign}{}.{}", &digits[..whole as usize], &digits[whole as usize..]),
            _ => format!("{sign}0.{digits:0>width$}", width = scale as usize),
        }
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        format!("{sign}{first}{point}{rest}E{exponent:+}")
    })
}

/// The value of a timestamp, and how many of its units are in a second.
pub(crate) fn timestamp(array: &dyn Array, at: usize) -> Option<(i64, i64)> {
    let DataType::Timestamp(unit, _) = array.data_type() else { return None };
    Some(match unit {
        TimeUnit::Second => (array.as_primitive::<TimestampSecondType>().value(at), 1),
        TimeUnit::Millisecond => (array.as_primitive::<TimestampMillisecondType>().value(at), 1_000),
        TimeUnit::Microsecond => (array.as_primitive::<TimestampMicrosecondType>().value(at), 1_000_000),
        TimeUnit::Nanosecond => (array.as_primitive::<TimestampNanosecondType>().value(at), 1_000_000_000),
    })
}

/// The value of a duration or an interval with its units, for people.
pub(crate) fn span(array: &dyn Array, at: usize) -> Option<String> {
    Some(match array.data_type() {
        DataType::Duration(TimeUnit::Second) => format!("{} s", array.as_primitive::<DurationSecondType>().value(at)),
        DataType::Duration(TimeUnit::Millisecond) => {
            format!("{} ms", array.as_primitive::<DurationMillisecondType>().value(at))
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            format!("{} us", array.as_primitive::<DurationMicrosecondType>().value(at))
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            format!("{} ns", array.as_primitive::<DurationNanosecondType>().value(at))
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            format!("{} months", array.as_primitive::<IntervalYearMonthType>().value(at))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(at);
            format!("{} days {} ms", value.days, value.milliseconds)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(at);
            format!("{} months {} days {} ns", value.months, value.days, value.nanoseconds)
        }
        _ => return None,
    })
}
