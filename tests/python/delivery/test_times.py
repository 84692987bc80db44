import pytest

from tickwheel.delivery import BadRecord
from tickwheel.delivery.times import MAX_DUE_MS, due_from, number_or_text, rfc_3339


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
    assert due_from(text, "due") == epoch_ms


@pytest.mark.parametrize(("fraction", "ms"), [("0001", 1), ("9990", 999), ("99900001", 1000), ("5", 500), ("000", 0)])
def test_what_is_finer_than_a_millisecond_is_rounded_up__D3(fraction: str, ms: int) -> None:
    assert due_from(f"1970-01-01T00:00:00.{fraction}Z", "due") == ms


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("2026-01-31T08:00:00", "no zone"),
        ("2026-01-31T08:00:00 Z", "not a time"),
        ("2026-01-31", "not a time"),
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
        (-1, "out of range"),
        (MAX_DUE_MS + 1, "out of range"),
        (True, "neither"),
        (5.0, "neither"),
        (None, "neither"),
        ([], "neither"),
    ],
)
def test_any_other_time_says_what_is_allowed__D1(value: object, reason: str) -> None:
    with pytest.raises(BadRecord) as error:
        due_from(value, "sched")
    assert reason in error.value.reason
    assert error.value.reason.startswith("sched ")
    assert "RFC 3339 with an offset" in error.value.allowed
    assert "epoch milliseconds" in error.value.allowed


def test_digits_are_epoch_milliseconds_where_all_is_text__D1() -> None:
    assert number_or_text("1700000000000") == 1_700_000_000_000
    assert number_or_text("-5") == -5
    assert number_or_text("9" * 5000) == "9" * 5000
    assert number_or_text("٣") == "٣"


@pytest.mark.parametrize("epoch_ms", [0, 1, 999, 1385557200123, MAX_DUE_MS])
def test_what_is_written_reads_back_the_same__D11(epoch_ms: int) -> None:
    assert due_from(rfc_3339(epoch_ms), "due") == epoch_ms
    assert len(rfc_3339(epoch_ms)) == len("2026-01-31T08:00:00.000Z")
