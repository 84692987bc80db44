import pytest

from tickwheel._native import MAX_DUE_MS, due_of, rfc_3339
from tickwheel.delivery import BadRecord


@pytest.mark.parametrize(
    ("text", "epoch_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.250z", 250),
        ("1970-01-01 01:30:00+01:30", 0),
        ("1969-12-31T19:00:01-05:00", 1000),
        ("2013-11-27T08:00:00.123-05:00", 1385557200123),
        ("9999-12-31T23:59:59.999Z", MAX_DUE_MS),
    ],
)
def test_a_time_is_rfc_3339_with_an_offset__D1(text: str, epoch_ms: int) -> None:
    assert due_of(text, "due") == epoch_ms


@pytest.mark.parametrize(("fraction", "ms"), [("0001", 1), ("9990", 999), ("99900001", 1000), ("5", 500), ("000", 0)])
def test_what_is_finer_than_a_millisecond_is_rounded_up__D3(fraction: str, ms: int) -> None:
    assert due_of(f"1970-01-01T00:00:00.{fraction}Z", "due") == ms


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("2026-01-31T08:00:00", "no zone"),
        ("2026-01-31T08:00:00 Z", "not a time"),
        ("2026-01-31", "is a date without a time of day"),
        ("2026-W05-6T08:00:00Z", "not a time"),
        ("٢٠٢٦-01-31T08:00:00Z", "not a time"),
        ("2026-02-30T08:00:00Z", "not on the calendar"),
        ("2026-01-31T24:00:00Z", "not on the calendar"),
        ("2026-01-31T08:00:60Z", "not on the calendar"),
        ("2026-01-31T08:00:00+24:00", "no such offset"),
        ("2026-01-31T08:00:00+01:60", "no such offset"),
        ("0000-01-01T00:00:00Z", "not on the calendar"),
        ("1969-12-31T23:59:59Z", "out of range"),
        ("9999-12-31T23:59:59.9991Z", "out of range"),
        ("9999-12-31T23:59:59-00:01", "out of range"),
        ("-1", "out of range"),
        (str(MAX_DUE_MS + 1), "looks like microseconds"),
        ("0", "is 0, which is no due time"),
        ("99999999999", "is 99999999999, which looks like seconds; in milliseconds it is 99999999999000"),
        ("9" * 5000, "not a time"),
        ("٣", "not a time"),
        ("5.0", "is 5, which looks like seconds"),
        ("", "not a time"),
    ],
)
def test_any_other_time_says_what_is_allowed__D1(value: str, reason: str) -> None:
    with pytest.raises(BadRecord) as error:
        due_of(value, "sched")
    assert reason in error.value.reason
    assert error.value.reason.startswith("sched ")
    assert "RFC 3339 with an offset" in error.value.allowed
    assert "epoch milliseconds" in error.value.allowed


def test_digits_are_epoch_milliseconds_where_all_is_text__D1() -> None:
    assert due_of("1700000000000", "due") == 1_700_000_000_000
    assert due_of("100000000000", "due") == 100_000_000_000


@pytest.mark.parametrize("epoch_ms", [0, 1, 999, 1385557200123, MAX_DUE_MS])
def test_what_is_written_reads_back_the_same__D11(epoch_ms: int) -> None:
    assert due_of(rfc_3339(epoch_ms), "due") == epoch_ms
    assert len(rfc_3339(epoch_ms)) == len("2026-01-31T08:00:00.000Z")


def test_a_time_that_can_not_be_written_is_the_next_one_that_can__D11() -> None:
    assert (rfc_3339(-1), rfc_3339(2**63 - 1)) == ("1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")
