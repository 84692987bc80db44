"""A property of all formats: the same record gives the same message, or the same reason (D1)."""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from delivery.fuzzing import fuzz
from delivery.one_record import FORMATS, as_put

DUE_MS = 1_700_000_000_005
WORDS = st.text("abc é\n\"',;", min_size=1, max_size=5)
NUMBERS = (
    st.sampled_from([0, 5, 45_292, 1_769_846_400, DUE_MS, 253_402_300_799_999, 253_402_300_800_000, -1])
    | st.integers(-(2**62), 2**62)
    | st.sampled_from([float(DUE_MS), DUE_MS + 0.5, 1.5, 5.0])
    | st.sampled_from([Decimal("1.50"), Decimal(DUE_MS), Decimal(f"{DUE_MS}.25")])
)
TIMES = st.sampled_from(
    [
        "2026-01-31T08:00:00Z",
        "2026-01-31 08:00+01",
        "2026-01-31T08:00:00.0001-0330",
        "2026-01-31T08:00:00",
        "2026-02-30T08:00:00Z",
        "1969-12-31T23:59:59Z",
        "1.76985E+12",
        "soon",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
FIELDS = {
    "key": st.none() | WORDS,
    "due": st.none() | NUMBERS | TIMES,
    "delay_ms": st.none() | NUMBERS,
    "expires": st.none() | NUMBERS | TIMES,
    "payload": JSON,
    "every": st.none() | st.sampled_from([5, 60_000.0, 1.5, Decimal("60000.0"), 0, 253_402_300_799_999]),
    "cron": st.none() | st.sampled_from(["0 9 * * *", "61 * * * *", "@midnight"]),
    "traceparent": st.none() | st.sampled_from(["00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]),
    "color": WORDS,
    "paylod": WORDS,
}
EACH_FILE = {"id": st.none() | WORDS, "due": FIELDS.pop("due")}
"""A file without one of these columns is one error for the file, not a reason for each record."""
OPERATIONS = {
    "op": st.sampled_from(["cancel", "reschedule", "move"]),
    "payload_base64": st.sampled_from(["/wA=", "AA"]),
}


def read_by_each(record: dict[str, Any]) -> dict[str, Any]:
    """As each format reads it. A request has a clock of its own."""
    counts_from_now = record["due"] is None or record.get("delay_ms") is not None
    return {name: read(record) for name, read in FORMATS.items() if name != "http" or not counts_from_now}


@fuzz(st.fixed_dictionaries(EACH_FILE, optional=FIELDS), examples=300)
def test_the_same_record_is_the_same_in_each_format_and_in_put__D1(record: dict[str, Any]) -> None:
    found = read_by_each(record)
    if "http" in found and not {"color", "paylod"} & record.keys():
        found["put"] = as_put(record)
    assert all(each == found["ndjson"] for each in found.values()), found


@fuzz(st.fixed_dictionaries(EACH_FILE, optional=FIELDS | OPERATIONS), examples=300)
def test_the_same_operation_is_the_same_in_each_format__D1(record: dict[str, Any]) -> None:
    found = read_by_each(record)
    assert all(each == found["ndjson"] for each in found.values()), found
