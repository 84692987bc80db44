"""A record means the same in every format: fields that are null, numbers of each type, names given by the user (D1)."""

from decimal import Decimal
from typing import Any

import pytest

from delivery.one_record import FORMATS, as_put
from tickwheel.delivery.model.message import Columns

DUE_MS = 1_700_000_000_005
FAR_MS = 4_000_000_000_000

EACH = pytest.mark.parametrize("read", FORMATS.values(), ids=FORMATS)
FILES = {name: read for name, read in FORMATS.items() if name != "http"}
"""Only of a file a user names the columns."""
EACH_FILE = pytest.mark.parametrize("read", FILES.values(), ids=FILES)
EACH_AND_PUT = pytest.mark.parametrize("read", [*FORMATS.values(), as_put], ids=[*FORMATS, "put"])


def message(
    payload: Any,
    *,
    key: str | None = None,
    due_ms: int | None = DUE_MS,
    delay_ms: float | None = None,
    expires_ms: int | None = None,
) -> Any:
    return "message", "a", key, due_ms, delay_ms, expires_ms, payload


FIELDS_OF_A_MESSAGE = ["key", "delay_ms", "expires", "op", "payload_base64", "traceparent", "every", "cron"]


@EACH_AND_PUT
@pytest.mark.parametrize("name", [*FIELDS_OF_A_MESSAGE, "tz", "missed", "color"])
def test_a_field_that_is_null_is_not_there__D1(read: Any, name: str) -> None:
    assert read({"id": "a", "due": DUE_MS, "payload": 1, name: None}) == message(1)


@EACH_AND_PUT
def test_a_payload_that_is_null_is_not_there__D1(read: Any) -> None:
    assert read({"id": "a", "due": DUE_MS, "payload": None}) == message({})
    assert read({"id": "a", "due": DUE_MS, "payload": None, "color": "red"}) == message({"color": "red"})
    assert read({"id": "a", "due": DUE_MS, "color": None}) == message({})


@EACH
def test_a_payload_in_base64_stands_beside_one_that_is_null__D1(read: Any) -> None:
    assert read({"id": "a", "due": DUE_MS, "payload": None, "payload_base64": "/wA="}) == message(b"\xff\0")


@EACH
@pytest.mark.parametrize("name", ["due", "payload", "tz", "missed", "color", *FIELDS_OF_A_MESSAGE])
def test_a_cancel_and_a_reschedule_may_have_fields_that_are_null__D1(read: Any, name: str) -> None:
    cancel = {name: None, "op": "cancel", "id": "a"}
    assert read(cancel) == ("cancel", "a", None)
    if name != "due":
        assert read({name: None, "op": "reschedule", "id": "a", "due": DUE_MS}) == ("reschedule", "a", None, DUE_MS)


NAMED = Columns(key="tail", payload="body")


@EACH_FILE
def test_a_key_that_is_named_must_be_in_each_record__D1(read: Any) -> None:
    good = {"id": "a", "due": DUE_MS, "tail": "k", "body": 1}
    assert read(good, NAMED) == message(1, key="k")
    assert read(good | {"tail": None}, NAMED) == "tail is missing"
    assert read({"id": "a", "op": "cancel", "tail": None, "body": None}, Columns(key="tail")) == "tail is missing"
    assert read({"id": "a", "op": "cancel", "tail": "k"}, Columns(key="tail")) == ("cancel", "a", "k")


def test_a_key_that_is_named_must_be_among_the_names_of_a_record__D1() -> None:
    assert FORMATS["ndjson"]({"id": "a", "due": DUE_MS, "body": 1}, NAMED) == "tail is missing"


@EACH_FILE
def test_a_key_that_is_named_with_a_question_mark_may_be_missing__D1(read: Any) -> None:
    columns = Columns(key="tail?")
    assert read({"id": "a", "due": DUE_MS, "tail": "k", "payload": 1}, columns) == message(1, key="k")
    assert read({"id": "a", "due": DUE_MS, "tail": None, "payload": 1}, columns) == message(1)
    assert read({"id": "a", "due": DUE_MS, "payload": 1}, columns) == message(1)


@pytest.mark.parametrize("read", [it for name, it in FILES.items() if name != "csv"])
def test_a_payload_that_is_named_must_be_in_each_record__D1(read: Any) -> None:
    assert read({"id": "a", "due": DUE_MS, "tail": "k", "body": None}, NAMED) == "body is missing"


WHOLE = [DUE_MS, float(DUE_MS), Decimal(DUE_MS), Decimal(f"{DUE_MS}.000")]


@EACH_AND_PUT
@pytest.mark.parametrize("due", WHOLE, ids=["integer", "float", "decimal", "decimal with zeros"])
def test_a_due_time_is_a_whole_number_of_any_type__D1(read: Any, due: Any) -> None:
    assert read({"id": "a", "due": due, "payload": 1}) == message(1)
    assert read({"id": "a", "due": DUE_MS - 5, "expires": due, "payload": 1}) == message(
        1, due_ms=DUE_MS - 5, expires_ms=DUE_MS
    )


@EACH_AND_PUT
@pytest.mark.parametrize("due", [DUE_MS + 0.5, Decimal(f"{DUE_MS}.5")])
def test_a_due_time_with_a_fraction_is_refused__D1(read: Any, due: Any) -> None:
    assert read({"id": "a", "due": due, "payload": 1}) == f"due is {DUE_MS}.5, which is no whole number of milliseconds"


@EACH_AND_PUT
@pytest.mark.parametrize("delay_ms", [5, 5.0, 1.5, Decimal("1.5"), Decimal("5.000")])
def test_a_delay_is_a_number_of_any_type__D1(read: Any, delay_ms: Any) -> None:
    assert read({"id": "a", "delay_ms": delay_ms, "payload": 1}) == message(1, due_ms=None, delay_ms=float(delay_ms))


@EACH_AND_PUT
@pytest.mark.parametrize("every", [60_000, 60_000.0, Decimal(60_000), Decimal("60000.00")])
def test_an_interval_is_a_whole_number_of_any_type__D19(read: Any, every: Any) -> None:
    assert read({"id": "a", "due": FAR_MS, "every": every, "payload": 1}) == message(1, due_ms=FAR_MS)
    assert read({"id": "a", "due": FAR_MS, "every": every / 7, "payload": 1}) == "every is not a whole number in range"


@EACH_AND_PUT
def test_an_interval_that_ends_after_the_last_year_is_refused__D19(read: Any) -> None:
    far = 253_402_300_799_999
    assert read({"id": "a", "every": far, "payload": 1}) == "now + every is out of range"
    assert read({"id": "a", "delay_ms": far, "payload": 1}) == "now + delay_ms is out of range"


LOOKS = [
    (0, "due is 0, which is no due time: a field that was never set has this value"),
    (1_769_846_400, "due is 1769846400, which looks like seconds; in milliseconds it is 1769846400000"),
    (1_769_846_400.5, "due is 1769846400.5, which looks like seconds; in milliseconds it is 1769846400500"),
    (45_292, "due is 45292, which looks like days: in a spreadsheet it is 2024-01-01"),
    (45_292.5, "due is 45292.5, which looks like days: in a spreadsheet it is 2024-01-01"),
    (
        1_769_846_400_000_000,
        "due is 1769846400000000, which looks like microseconds; in milliseconds it is 1769846400000",
    ),
    (
        1_769_846_400_000_000_001,
        "due is 1769846400000000001, which looks like nanoseconds; in milliseconds it is 1769846400001",
    ),
    (-5, "due is out of range"),
    (10**19, "due is 10000000000000000000, which looks like nanoseconds; in milliseconds it is 10000000000000"),
]


@EACH_AND_PUT
@pytest.mark.parametrize(("due", "reason"), LOOKS)
def test_a_number_in_another_unit_is_refused_and_the_unit_is_named__D1(read: Any, due: Any, reason: str) -> None:
    given = Decimal(due) if due == 10**19 else due
    assert read({"id": "a", "due": given, "payload": 1}) == reason


AT_8 = 1_769_842_800_000


@EACH_AND_PUT
@pytest.mark.parametrize(
    "due",
    [
        "2026-01-31T08:00:00+01:00",
        "2026-01-31T08:00:00+0100",
        "2026-01-31 08:00:00+01",
        "2026-01-31T07:00Z",
        "2026-01-31 08:00+01",
        "2026-01-31T03:30:00-0330",
    ],
)
def test_an_offset_and_the_seconds_may_be_short__D1(read: Any, due: str) -> None:
    assert read({"id": "a", "due": due, "payload": 1}) == message(1, due_ms=AT_8)


@EACH_AND_PUT
@pytest.mark.parametrize(
    ("due", "reason"),
    [
        ("2026-01-31T08:00:00", "due has no zone: '2026-01-31T08:00:00'"),
        ("2026-01-31T08:00", "due has no zone: '2026-01-31T08:00'"),
        ("2026-01-31T08:00:00+1", "due is not a time: '2026-01-31T08:00:00+1'"),
        ("1.76985E+12", "due is 1.76985E+12, which may be rounded"),
    ],
)
def test_text_that_is_no_time_says_why__D1(read: Any, due: str, reason: str) -> None:
    assert read({"id": "a", "due": due, "payload": 1}) == reason


IN_BERLIN = Columns(zone="Europe/Berlin")


@EACH_FILE
@pytest.mark.parametrize(
    ("due", "expected"),
    [
        ("2026-01-31T08:00:00", AT_8),
        ("2026-01-31 08:00", AT_8),
        ("2026-07-31 08:00:00.0001", 1_785_477_600_001),
        ("2026-01-31T07:00:00Z", AT_8),
        (
            "2026-03-29 02:30:00",
            "due is at no time in Europe/Berlin, whose clock is put forward there: '2026-03-29 02:30:00'",
        ),
        ("2026-10-25 02:30:00", "due is twice in Europe/Berlin, whose clock is put back there: '2026-10-25 02:30:00'"),
    ],
)
def test_a_time_without_a_zone_is_that_of_the_zone_that_the_user_names__D1(read: Any, due: str, expected: Any) -> None:
    found = read({"id": "a", "due": due, "payload": 1}, IN_BERLIN)
    assert found == (expected if isinstance(expected, str) else message(1, due_ms=expected))


@EACH_AND_PUT
@pytest.mark.parametrize(
    "tz", ["", "localtime", "posixrules", "Factory", "right/Europe/Berlin", "posix/UTC", "zone.tab"]
)
def test_a_name_that_is_no_place_s_zone_is_refused__D19(read: Any, tz: str) -> None:
    if read is FORMATS["csv"] and not tz:
        return  # an empty cell is not there
    record = {"id": "a", "cron": "0 9 * * *", "tz": tz, "payload": 1}
    found = read(record)
    assert found == f"tz is {tz!r}: no time zone of this name is known here"
