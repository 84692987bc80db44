use super::*;
use crate::base::due_times::{due_from_digits_or_text, due_from_text};

fn text(text: &str) -> Result<i64, String> {
    due_from_text(text, "sched", None).map_err(|bad| bad.reason)
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
        ("1970-01-01T01:30:00+0130", 0),
        ("1970-01-01 01:00:00.001+01", 1),
        ("1970-01-01T00:01Z", 60_000),
        ("1969-12-31 23:00-01", 0),
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
        ("2026-01-31T08:00:00+1", "sched is not a time: '2026-01-31T08:00:00+1'"),
        ("2026-01-31T08:00:00+01:", "sched is not a time: '2026-01-31T08:00:00+01:'"),
        ("2026-01-31T08:00:", "sched is not a time: '2026-01-31T08:00:'"),
        ("2026-01-31T08:00.5Z", "sched is not a time: '2026-01-31T08:00.5Z'"),
        ("2026-01-31T08Z", "sched is not a time: '2026-01-31T08Z'"),
        ("2026-01-31", "sched is a date without a time of day: '2026-01-31'"),
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
fn a_time_of_the_command_line_may_be_digits__d1() {
    assert_eq!(due_from_digits_or_text("1700000000000", "due"), Ok(1_700_000_000_000));
    assert_eq!(due_from_digits_or_text("1700000000000.0", "due"), Ok(1_700_000_000_000));
    assert_eq!(due_from_digits_or_text("-5", "due").unwrap_err().reason, "due is out of range");
    for text in ["٣", "-", ""] {
        assert!(due_from_digits_or_text(text, "due").unwrap_err().reason.starts_with("due is not a time"), "{text}");
    }
    assert_eq!(due_in_range(5, "due_ms"), Ok(5));
}

#[test]
fn a_time_without_an_offset_is_that_of_a_named_zone__d1() {
    let berlin = crate::base::times::zone_named("Europe/Berlin", "zone").unwrap();
    let read = |text| due_from_text(text, "due", Some(&berlin)).map_err(|bad| bad.reason);
    assert_eq!(read("2026-01-31T08:00:00"), Ok(1_769_842_800_000));
    assert_eq!(read("2026-07-31 08:00"), Ok(1_785_477_600_000));
    assert_eq!(read("2026-01-31T08:00:00Z"), Ok(1_769_846_400_000), "its own offset counts");
    let never = "due is at no time in Europe/Berlin, whose clock is put forward there: '2026-03-29 02:30'";
    assert_eq!(read("2026-03-29 02:30"), Err(never.into()));
    let twice = "due is twice in Europe/Berlin, whose clock is put back there: '2026-10-25 02:30'";
    assert_eq!(read("2026-10-25 02:30"), Err(twice.into()));
    assert_eq!(read("1970-01-01T00:30:00"), Err("due is out of range".into()));
}

#[test]
fn a_time_that_is_written_reads_back_the_same_on_each_day__d11() {
    const DAY_MS: i64 = 86_400_000;
    for day in 0..=MAX_DUE_MS / DAY_MS {
        let due_ms = (day * DAY_MS + day * 7_919_777 % DAY_MS).min(MAX_DUE_MS);
        let written = rfc_3339(due_ms);
        assert_eq!(text(std::str::from_utf8(&written).unwrap()), Ok(due_ms));
    }
    assert_eq!(&rfc_3339(1_385_557_200_123), b"2013-11-27T13:00:00.123Z");
    assert_eq!(&rfc_3339(-1), b"1970-01-01T00:00:00.000Z");
}

#[test]
fn a_date_may_be_before_1970() {
    let date_of_day = |days| date_of_day(days).map(|date| (date.year(), date.month(), date.day()));
    assert_eq!(date_of_day(0), Some((1970, 1, 1)));
    assert_eq!(date_of_day(-1), Some((1969, 12, 31)));
    assert_eq!(date_of_day(-719_528), Some((0, 1, 1)));
    assert_eq!(date_of_day(-719_529), None);
    assert_eq!(date_of_day(2_932_896), Some((9999, 12, 31)));
    assert_eq!(date_of_day(2_932_897), None);
    assert_eq!([date_of_day(i64::MIN), date_of_day(i64::MAX)], [None, None]);
}
