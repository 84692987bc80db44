//! The times that rules give.

use super::*;
use crate::base::due_times::due_from_text;
use crate::message::MAX_NAME;

fn ms(text: &str) -> i64 {
    due_from_text(text, "due", None).unwrap()
}

fn shown(at_ms: i64) -> String {
    String::from_utf8(rfc_3339(at_ms).to_vec()).unwrap()
}

fn every(every: i64, missed: Missed, from_ms: i64) -> Recurrence {
    Recurrence { rule: Rule::every(every).unwrap(), missed, from_ms, given_ms: None, sent_ms: None }
}

fn cron(pattern: &str, tz: &str, from: &str) -> Recurrence {
    let rule = Rule::cron(pattern, tz).unwrap();
    Recurrence { rule, missed: Missed::Skip, from_ms: ms(from), given_ms: None, sent_ms: None }
}

/// The first `count` times. Each is asked for right after the one before.
fn times(it: &Recurrence, count: usize) -> Vec<String> {
    let mut at_ms = it.first_ms().unwrap();
    let mut all = vec![shown(at_ms)];
    while all.len() < count {
        at_ms = it.after(at_ms, at_ms + 1).unwrap();
        all.push(shown(at_ms));
    }
    all
}

#[test]
fn every_so_many_milliseconds_from_the_first_on__d19() {
    let it = every(60_000, Missed::Skip, 1_000);
    assert_eq!(it.first_ms().unwrap(), 1_000);
    assert_eq!(it.after(1_000, 1_001).unwrap(), 61_000);
    assert_eq!(it.after(-5, 0).unwrap(), 1_000, "none before the first");
    assert_eq!(every(1, Missed::Skip, 7).after(7, 7).unwrap(), 8);
}

#[test]
fn what_was_missed_is_left_out_made_one_by_one_or_the_last_of_it__d19() {
    // The occurrence due at 0 has its outcome at 210 s.
    for (missed, expected_ms) in [(Missed::Skip, 240_000), (Missed::All, 60_000), (Missed::Last, 180_000)] {
        let it = every(60_000, missed, 0);
        assert_eq!(it.after(0, 210_000).unwrap(), expected_ms, "{missed:?}");
        assert_eq!(it.after(0, 60_000).unwrap(), 60_000, "{missed:?}: one that is due in this moment is not missed");
        assert_eq!(it.after(0, 59_999).unwrap(), 60_000, "{missed:?}");
    }
    assert_eq!(every(60_000, Missed::Last, 0).after(0, 180_000).unwrap(), 180_000);
    assert_eq!(every(60_000, Missed::Skip, 0).after(0, 180_000).unwrap(), 180_000);
    let mut it = cron("*/15 * * * *", "UTC", "2026-01-01T00:00:00Z");
    let (last_ms, now_ms) = (ms("2026-01-01T00:15:00Z"), ms("2026-01-01T02:20:00.5Z"));
    for (missed, expected) in [(Missed::Skip, "02:30"), (Missed::All, "00:30"), (Missed::Last, "02:15")] {
        it.missed = missed;
        let expected = format!("2026-01-01T{expected}:00.000Z");
        assert_eq!(shown(it.after(last_ms, now_ms).unwrap()), expected, "{missed:?}");
    }
}

#[test]
fn a_pattern_counts_in_its_time_zone_also_where_the_clock_is_changed__d19() {
    // On 2026-03-29 the clock in Berlin skips 02:30. The occurrence comes at 03:00, or 01:00 UTC.
    let daily = cron("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z");
    assert_eq!(times(&daily, 3), ["2026-03-28T01:30:00.000Z", "2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"]);
    // On 2026-10-25 the clock shows 02:30 twice. The first counts.
    let daily = Recurrence { from_ms: ms("2026-10-24T12:00:00Z"), ..daily };
    assert_eq!(times(&daily, 2), ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]);
    // An hourly pattern comes every hour, whatever the clock does.
    let hourly = cron("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z");
    let hours = ["2026-10-25T00", "2026-10-25T01", "2026-10-25T02"].map(|hour| format!("{hour}:00:00.000Z"));
    assert_eq!(times(&hourly, 3), hours);
    let weekdays = cron("0 9 * * MON-FRI", "America/New_York", "2026-11-20T15:00:00Z");
    assert_eq!(times(&weekdays, 2), ["2026-11-23T14:00:00.000Z", "2026-11-24T14:00:00.000Z"]);
    assert_eq!(times(&cron("*/20 * * * * *", "UTC", "2026-01-01T00:00:00.001Z"), 1), ["2026-01-01T00:00:20.000Z"]);
    assert_eq!(times(&cron("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z"), 1), ["2028-02-29T00:00:00.000Z"]);
}

#[test]
fn each_hour_that_a_pattern_names_comes_once_a_day_also_where_the_clock_is_changed__d19() {
    let all = |pattern: &str, tz: &str, from: &str, count| {
        let it = Recurrence { missed: Missed::All, ..cron(pattern, tz, from) };
        let mut at_ms = it.first_ms().unwrap();
        let mut all = Vec::new();
        while all.len() < count {
            all.push(shown(at_ms)[5..16].to_owned());
            at_ms = it.after(at_ms, at_ms).unwrap();
        }
        all
    };
    let berlin = "Europe/Berlin";
    assert_eq!(
        all("30 2,14 * * *", berlin, "2027-03-27T12:00:00Z", 4),
        ["03-27T13:30", "03-28T01:00", "03-28T12:30", "03-29T00:30"]
    );
    assert_eq!(all("30 2,14 * * *", berlin, "2027-10-30T20:00:00Z", 3), ["10-31T00:30", "10-31T13:30", "11-01T01:30"]);
    assert_eq!(
        all("*/15 2 * * *", berlin, "2027-03-28T00:30:00Z", 2),
        ["03-28T01:00", "03-29T00:00"],
        "all at the first moment after"
    );
    assert_eq!(all("*/30 2 * * *", berlin, "2027-10-31T00:10:00Z", 2), ["10-31T00:30", "11-01T01:00"]);
    assert_eq!(all("0 */2 * * *", berlin, "2027-10-30T23:30:00Z", 3), ["10-31T00:00", "10-31T01:00", "10-31T03:00"]);
    // The question comes in the last second before the change, at the change, and after it.
    let daily = cron("30 2 * * *", berlin, "2027-01-01T00:00:00Z");
    for (from, expected) in [
        ("2027-03-28T00:59:59Z", "2027-03-28T01:00:00.000Z"),
        ("2027-03-28T00:59:59.001Z", "2027-03-28T01:00:00.000Z"),
        ("2027-03-28T01:00:00Z", "2027-03-28T01:00:00.000Z"),
        ("2027-03-28T01:00:00.001Z", "2027-03-29T00:30:00.000Z"),
    ] {
        assert_eq!(shown(daily.after(ms(from) - 1, ms(from)).unwrap()), expected, "{from}");
    }
    // The clock skips midnight in Cairo, and a whole day on Samoa.
    assert_eq!(
        all("0 0 * * *", "Africa/Cairo", "2027-04-28T12:00:00Z", 3),
        ["04-28T22:00", "04-29T22:00", "04-30T21:00"]
    );
    assert_eq!(all("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", 1), ["12-30T10:00"]);
}

#[test]
fn times_ascend_and_are_what_is_asked_for_around_each_change_of_a_clock__d19() {
    let mut random = fastrand::Rng::with_seed(19);
    let zones = ["Europe/Berlin", "America/Santiago", "Africa/Cairo", "Australia/Lord_Howe", "America/St_Johns", "UTC"];
    let patterns = [
        "30 2 * * *",
        "0 0 * * *",
        "15,45 1-3 * * *",
        "*/10 2 * * *",
        "0 * * * *",
        "5 */3 * * *",
        "0 0,12 * * SUN",
        "59 59 23 * * *",
    ];
    for _ in 0..300 {
        let (pattern, tz) = (random.choice(patterns).unwrap(), random.choice(zones).unwrap());
        let it = cron(pattern, tz, "2027-01-01T00:00:00Z");
        let from_ms = it.from_ms + random.i64(0..366 * 86_400_000);
        let next_ms = it.after(from_ms - 1, from_ms).unwrap();
        assert!(next_ms >= from_ms, "{pattern} in {tz}");
        for ask_ms in [next_ms, from_ms + (next_ms - from_ms) / 2] {
            assert_eq!(it.after(ask_ms - 1, ask_ms).unwrap(), next_ms, "{pattern} in {tz} from {from_ms}");
        }
        let last = Recurrence { missed: Missed::Last, ..it.clone() };
        let later_ms = it.after(next_ms, next_ms).unwrap();
        assert_eq!(last.after(next_ms - 1, later_ms + 1).unwrap(), later_ms, "{pattern} in {tz}");
    }
}

#[test]
fn a_time_of_a_pattern_is_never_before_what_is_asked_for__d19() {
    let it = cron("* * * * *", "Asia/Kathmandu", "2026-01-01T00:00:00Z");
    for from_ms in [0, 1, 999, 1_000, 59_999, 60_000, 60_001].map(|ms| it.from_ms + ms) {
        let due_ms = it.after(from_ms - 1, from_ms).unwrap();
        assert!(due_ms >= from_ms && due_ms - from_ms < 60_000 && due_ms % 60_000 == 0, "{from_ms}: {due_ms}");
    }
}

#[test]
fn what_is_no_rule_says_what_would_be_one__d2_d19() {
    let refused = |result: Result<Rule, BadRecord>| result.unwrap_err();
    assert_eq!(refused(Rule::every(0)).reason, "every is 0");
    assert_eq!(refused(Rule::every(-5)).allowed, EVERY);
    assert_eq!(refused(Rule::every(MAX_DUE_MS + 1)).allowed, EVERY);
    let wrong = [
        ("", "UTC", "cron is ''"),
        ("61 * * * *", "UTC", "cron is '61 * * * *'"),
        ("0 0 30 2 *", "UTC", "it never comes"),
        ("0 0 0 1 1 * 2030", "UTC", "cron is"),
        (&"*".repeat(300), "UTC", "it is too long"),
        ("0 9 * * *", "Europe/Berlim", "tz is 'Europe/Berlim': no time zone"),
        ("0 9 * * *", "../../../etc/passwd", "tz is '../../../etc/passwd': no time zone"),
    ];
    for (pattern, tz, reason) in wrong {
        let bad = refused(Rule::cron(pattern, tz));
        assert!(bad.reason.contains(reason), "{pattern}: {}", bad.reason);
        assert!([CRON, TZ].contains(&bad.allowed.as_str()), "{pattern}: {}", bad.allowed);
    }
    let last = every(1_000, Missed::All, MAX_DUE_MS - 1);
    assert!(last.after(MAX_DUE_MS - 1, 0).unwrap_err().reason.contains("before year 10000"));
}

#[test]
fn what_comes_once_in_decades_comes__d19() {
    for day in ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"] {
        let leap = cron(&format!("0 0 29 2 +{day}"), "UTC", "2026-01-01T00:00:00Z");
        let due_ms = leap.first_ms().unwrap();
        assert!(shown(due_ms).contains("-02-29T"), "{day}");
        assert!(leap.after(due_ms, due_ms).unwrap() - due_ms > 5 * 365 * 86_400_000, "{day}");
    }
    assert!(Rule::cron("0 0 29 2 +MON#1", "UTC").is_err(), "that is never the first Monday");
}

#[test]
fn no_text_makes_the_parser_panic__d2() {
    let mut random = fastrand::Rng::with_seed(19);
    let parts = [
        "*",
        "1",
        "59",
        "7",
        "99999999999",
        "-",
        "/",
        ",",
        "L",
        "W",
        "#",
        "?",
        "+",
        "@",
        "MON",
        "JAN",
        " ",
        "0-5/2",
        "é",
        "\0",
    ];
    for _ in 0..20_000 {
        let count = random.usize(1..12);
        let pattern: String = (0..count)
            .map(|_| parts[random.usize(..parts.len())])
            .collect::<Vec<_>>()
            .join(if random.bool() { " " } else { "" });
        if let Ok(rule) = Rule::cron(&pattern, "Europe/Berlin") {
            let due_ms = rule.at_or_after(1_770_000_000_001).unwrap_or(i64::MAX);
            assert!(due_ms > 1_770_000_000_000, "{pattern}");
        }
    }
}

#[test]
fn a_rule_is_kept_as_json_and_its_content_is_what_was_given__d5_d19() {
    let kept = cron("0 9 * * 1-5", "Europe/Berlin", "2026-01-01T00:00:00Z");
    let text = r#"{"cron":"0 9 * * 1-5","tz":"Europe/Berlin","missed":"skip","from":1767225600000}"#;
    assert_eq!(kept.to_json(), text);
    assert_eq!(Recurrence::from_json(text), Some(kept.clone()));
    let beat = every(250, Missed::All, 5);
    assert_eq!(beat.to_json(), r#"{"every":250,"missed":"all","from":5}"#);
    assert_eq!(Recurrence::from_json(&beat.to_json()), Some(beat.clone()));
    let later = Recurrence { from_ms: 6, ..beat.clone() };
    assert_eq!(beat.content(), later.content(), "when it was accepted does not count");
    assert_ne!(beat.content(), Recurrence { given_ms: Some(5), ..beat.clone() }.content());
    assert_ne!(beat.content(), Recurrence { missed: Missed::Skip, ..beat }.content());
    assert_eq!(Recurrence::from_json("{}"), None);
    assert_eq!(occurrence_id("tea", 0, 0), "tea@1970-01-01T00:00:00.000Z");
    let longest = occurrence_id(&"x".repeat(LONGEST_ID), 0, i64::MAX);
    assert_eq!(longest.len(), MAX_NAME);
    let of = |length| check_parts(&"x".repeat(length), false);
    assert!(of(LONGEST_ID).is_ok() && of(LONGEST_ID + 1).is_err());
    assert_eq!(occurrence_id("tea", 0, 12), "tea@1970-01-01T00:00:00.000Z#12");
    let one = occurrence_id("tea", 0, 0);
    let counted = |steps: &str| format!("{one}#{steps}");
    for (id, is_one) in [
        (one.as_str(), true),
        (&counted("12"), true),
        (&counted("0"), false),
        (&counted("01"), false),
        (&counted(""), false),
        (&counted("1#2"), false),
        ("tea@home", false),
        ("@", false),
        ("a@2023-11-14T22:13:20Z", false),
        ("a@2023-11-14T22:13:20Z#1", false),
    ] {
        assert_eq!(check_parts(id, false).is_err(), is_one, "{id}");
    }
}

#[test]
fn a_day_field_that_begins_with_a_star_must_match_too_and_of_two_others_one_is_enough__d19() {
    for pattern in ["0 0 1-7 * */7", "0 0 1-7 * *", "0 0 1 * */1", "0 0 */10 * MON", "0 0 13 * FRI"] {
        let found: Vec<String> = times(&cron(pattern, "UTC", "2026-01-01T00:00:00Z"), 4);
        let found: Vec<&str> = found.iter().map(|day| &day[5..10]).collect();
        let expected = match pattern {
            "0 0 1-7 * */7" => ["01-04", "02-01", "03-01", "04-05"], // the first Sundays
            "0 0 1-7 * *" => ["01-01", "01-02", "01-03", "01-04"],
            "0 0 1 * */1" => ["01-01", "02-01", "03-01", "04-01"],
            "0 0 */10 * MON" => ["05-11", "06-01", "08-31", "09-21"],
            _ => ["01-02", "01-09", "01-13", "01-16"],
        };
        assert_eq!(found, expected, "{pattern}");
    }
}

#[test]
fn midnight_is_a_nickname_and_a_folder_of_zones_is_no_zone__d19() {
    assert_eq!(times(&cron("@midnight", "UTC", "2026-01-01T00:00:01Z"), 1), ["2026-01-02T00:00:00.000Z"]);
    for tz in ["", "localtime", "posixrules", "Factory", "right/Europe/Berlin", "posix/UTC"] {
        assert!(Rule::cron("0 9 * * *", tz).unwrap_err().reason.starts_with("tz is '"), "{tz}");
    }
}
