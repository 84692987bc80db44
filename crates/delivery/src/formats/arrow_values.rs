//! Reads single values of Arrow arrays. Only the type in the batch tells how to read an array.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType,
    RunEndIndexType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
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

/// The value of a type with a fixed size.
pub(crate) fn value<T: ArrowPrimitiveType>(array: &dyn Array, at: usize) -> T::Native {
    array.as_primitive::<T>().value(at)
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
        DataType::Int8 => value::<Int8Type>(array, at).into(),
        DataType::Int16 => value::<Int16Type>(array, at).into(),
        DataType::Int32 => value::<Int32Type>(array, at).into(),
        DataType::Int64 => value::<Int64Type>(array, at).into(),
        DataType::UInt8 => value::<UInt8Type>(array, at).into(),
        DataType::UInt16 => value::<UInt16Type>(array, at).into(),
        DataType::UInt32 => value::<UInt32Type>(array, at).into(),
        DataType::UInt64 => value::<UInt64Type>(array, at).into(),
        _ => return None,
    })
}

/// The value of any type of float.
pub(crate) fn float(array: &dyn Array, at: usize) -> Option<f64> {
    Some(match array.data_type() {
        DataType::Float16 => value::<Float16Type>(array, at).into(),
        DataType::Float32 => value::<Float32Type>(array, at).into(),
        DataType::Float64 => value::<Float64Type>(array, at),
        _ => return None,
    })
}

/// The digits of any type of decimal.
pub(crate) fn decimal(array: &dyn Array, at: usize) -> Option<String> {
    fn digits<T: DecimalType>(array: &dyn Array, at: usize, scale: i8) -> String {
        T::format_decimal(value::<T>(array, at), T::MAX_PRECISION, scale)
    }
    Some(match array.data_type() {
        DataType::Decimal32(_, scale) => digits::<Decimal32Type>(array, at, *scale),
        DataType::Decimal64(_, scale) => digits::<Decimal64Type>(array, at, *scale),
        DataType::Decimal128(_, scale) => digits::<Decimal128Type>(array, at, *scale),
        DataType::Decimal256(_, scale) => digits::<Decimal256Type>(array, at, *scale),
        _ => return None,
    })
}

/// The value of a timestamp, and how many of its units are in a second.
pub(crate) fn timestamp(array: &dyn Array, at: usize) -> Option<(i64, i64)> {
    let DataType::Timestamp(unit, _) = array.data_type() else { return None };
    Some(match unit {
        TimeUnit::Second => (value::<TimestampSecondType>(array, at), 1),
        TimeUnit::Millisecond => (value::<TimestampMillisecondType>(array, at), 1_000),
        TimeUnit::Microsecond => (value::<TimestampMicrosecondType>(array, at), 1_000_000),
        TimeUnit::Nanosecond => (value::<TimestampNanosecondType>(array, at), 1_000_000_000),
    })
}

/// The value of a duration or an interval with its units, for people.
pub(crate) fn span(array: &dyn Array, at: usize) -> Option<String> {
    Some(match array.data_type() {
        DataType::Duration(TimeUnit::Second) => format!("{} s", value::<DurationSecondType>(array, at)),
        DataType::Duration(TimeUnit::Millisecond) => format!("{} ms", value::<DurationMillisecondType>(array, at)),
        DataType::Duration(TimeUnit::Microsecond) => format!("{} us", value::<DurationMicrosecondType>(array, at)),
        DataType::Duration(TimeUnit::Nanosecond) => format!("{} ns", value::<DurationNanosecondType>(array, at)),
        DataType::Interval(IntervalUnit::YearMonth) => format!("{} months", value::<IntervalYearMonthType>(array, at)),
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = value::<IntervalDayTimeType>(array, at);
            format!("{} days {} ms", value.days, value.milliseconds)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = value::<IntervalMonthDayNanoType>(array, at);
            format!("{} months {} days {} ns", value.months, value.days, value.nanoseconds)
        }
        _ => return None,
    })
}
