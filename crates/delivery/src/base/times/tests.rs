use super::*;

fn text(text: &str) -> Result<i64, String> {
    due_from_text(text, "sched").map_err(|bad| bad.reason)
}

#[test]
fn a_time_is_rfc_3339_with_an_offset__d1() {
    for (given, epoch_ms) in [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.250z", 250),
        ("1970-01-01 01:30:00+01:30", 0),
        ("1969-12-31T19:00:01-05:00", 1000),
        ("2013-11-27T08:00:00.123-05:00", 1_385_557_200_123),
        ("2000-02-29T00:00:00Z", 951_782_400_000),
        ("9999-12-31T23:59:59.999Z", MAX_DUE_MS),
    ] {
        assert_eq!(text(given), Ok(epoch_ms), "{given}");
    }
}

#[test]
fn a_part_finer_than_a_millisecond_is_rounded_up__d3() {
    for (fraction, ms) in [("0001", 1), ("9990", 999), ("99900001", 1000), ("5", 500), ("000", 0)] {
        assert_eq!(text(&format!("1970-01-01T00:00:00.{fraction}Z")), Ok(ms), "{fraction}");
    }
}

#[test]
fn any_other_text_says_what_is_wrong__d1() {
    for (given, reason) in [
        ("2026-01-31T08:00:00", "sched has no zone: '2026-01-31T08:00:00'"),
        ("2026-01-31T08:00:00 Z", "sched is not a time: '2026-01-31T08:00:00 Z'"),
        ("2026-01-31T08:00:00.Z", "sched is not a time: '2026-01-31T08:00:00.Z'"),
        ("2026-01-31T08:00:00+0100", "sched is not a time: '2026-01-31T08:00:00+0100'"),
        ("2026-01-31", "sched is not a time: '2026-01-31'"),
        ("٢٠٢٦-01-31T08:00:00Z", "sched is not a time: '٢٠٢٦-01-31T08:00:00Z'"),
        ("2026-01-31T08:00:00Z\n", "sched is not a time: '2026-01-31T08:00:00Z\\n'"),
        ("2026-02-30T08:00:00Z", "sched is not on the calendar: '2026-02-30T08:00:00Z'"),
        ("2100-02-29T08:00:00Z", "sched is not on the calendar: '2100-02-29T08:00:00Z'"),
        ("2026-13-01T00:00:00Z", "sched is not on the calendar: '2026-13-01T00:00:00Z'"),
        ("2026-01-31T24:00:00Z", "sched is not on the calendar: '2026-01-31T24:00:00Z'"),
        ("2016-12-31T23:59:60Z", "sched is not on the calendar: '2016-12-31T23:59:60Z'"),
        ("0000-01-01T00:00:00Z", "sched is not on the calendar: '0000-01-01T00:00:00Z'"),
        ("2026-01-31T08:00:00+24:00", "sched has no such offset: '2026-01-31T08:00:00+24:00'"),
        ("2026-01-31T08:00:00+01:60", "sched has no such offset: '2026-01-31T08:00:00+01:60'"),
        ("1969-12-31T23:59:59Z", "sched is out of range"),
        ("9999-12-31T23:59:59.9991Z", "sched is out of range"),
        ("9999-12-31T23:59:59-00:01", "sched is out of range"),
        ("", "sched is not a time: ''"),
    ] {
        assert_eq!(text(given), Err(reason.into()), "{given}");
    }
}

#[test]
fn an_integer_that_looks_like_seconds_is_refused_and_shown_as_milliseconds__d1() {
    let bad = due_from_integer(1_769_846_400, "due").unwrap_err();
    assert_eq!(bad.reason, "due is 1769846400, which looks like seconds; in milliseconds it is 1769846400000");
    assert_eq!(bad.allowed, ALLOWED);
    assert_eq!(due_from_digits_or_text("1769846400", "due"), Err(bad));
    assert!(due_from_integer(0, "due").is_err());
    assert!(due_from_integer(i128::from(SECONDS_BELOW) - 1, "due").is_err());
    assert_eq!(due_from_integer(SECONDS_BELOW.into(), "due"), Ok(SECONDS_BELOW));
    assert_eq!(due_in_range(5, "due_ms"), Ok(5));
}

#[test]
fn an_integer_of_any_size_is_in_range_or_not__d1() {
    for value in [-1, i128::from(MAX_DUE_MS) + 1, i128::MAX, i128::MIN] {
        assert_eq!(due_from_integer(value, "due").unwrap_err().reason, "due is out of range", "{value}");
    }
    assert_eq!(due_from_digits_or_text("1700000000000", "due"), Ok(1_700_000_000_000));
    assert_eq!(due_from_digits_or_text("-5", "due").unwrap_err().reason, "due is out of range");
    for text in ["9999999999999999999", "٣", "-", "", "5.0"] {
        assert!(due_from_digits_or_text(text, "due").unwrap_err().reason.starts_with("due is not a time"), "{text}");
    }
}

#[test]
fn a_time_that_is_written_reads_back_the_same_on_each_day__d11() {
    for day in 0..=MAX_DUE_MS / MS_PER_DAY {
        let due_ms = (day * MS_PER_DAY + day * 7_919_777 % MS_PER_DAY).min(MAX_DUE_MS);
        let written = rfc_3339(due_ms);
        assert_eq!(text(std::str::from_utf8(&written).unwrap()), Ok(due_ms));
    }
    assert_eq!(&rfc_3339(1_385_557_200_123), b"2013-11-27T13:00:00.123Z");
    assert_eq!(&rfc_3339(-1), b"1970-01-01T00:00:00.000Z");
}

#[test]
fn a_date_may_be_before_1970() {
    assert_eq!(date_of_day(0), Some((1970, 1, 1)));
    assert_eq!(date_of_day(-1), Some((1969, 12, 31)));
    assert_eq!(date_of_day(-719_528), Some((0, 1, 1)));
    assert_eq!(date_of_day(-719_529), None);
    assert_eq!(date_of_day(2_932_896), Some((9999, 12, 31)));
    assert_eq!(date_of_day(2_932_897), None);
    assert_eq!([date_of_day(i64::MIN), date_of_day(i64::MAX)], [None, None]);
}
