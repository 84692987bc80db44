"""Files that other libraries and programs wrote: each record is read as meant, or refused with its reason (D1, D2).

`corpus/writers.py` made the files of `corpus/written`: five records each, in the forms that each writer has.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from delivery.records import found_in
from tickwheel.delivery.model.message import Columns, Message
from tickwheel.delivery.read.sources import OpenSource, find_sources

FOLDER = Path(__file__).parent / "corpus/written"
FILES = sorted(path.name for path in FOLDER.iterdir())
DUE_MS = 1_769_846_400_000
RECORDS = [
    ("a", "k1", DUE_MS, "plain"),
    ("b", None, DUE_MS + 1, "with, comma; and semicolon"),
    ("c", "k2", DUE_MS + 500, 'with "quotes"'),
    ("d", "k1", DUE_MS + 999, "two\nlines"),
    ("e", None, DUE_MS + 86_400_000, "ünï ✓"),
]


class Read(NamedTuple):
    records: Sequence[tuple[str, str | None, int, str]]
    reasons: Sequence[str]


def read(name: str, columns: Columns = Columns()) -> Read:  # noqa: B008
    """The records, and the reasons of the others."""
    [source] = find_sources([str(FOLDER / name)])
    records, reasons = [], []
    for found in found_in(part.records for part in OpenSource(source, columns, {})):
        if isinstance(found.item, Message):
            text = msgspec.json.decode(bytes(found.item.payload))["text"]
            records.append((found.item.id, found.item.key, found.item.due_ms, text))
        else:
            assert found.bad is not None
            reasons.append(found.bad.reason)
    return Read(records, reasons)


NO_ZONE = "due has no zone: '2026-01-31T08:00:00"
NAIVE = {
    *("duckdb-naive.parquet", "pandas-int96.parquet", "pandas-naive-iso.jsonl", "pandas-naive.csv"),
    *("pandas-naive.parquet", "pandas-of-fastparquet-int96.parquet", "polars-naive.parquet", "pyarrow-int96.parquet"),
    *("pyarrow-due-naive-ms.parquet", "pyarrow-due-naive-us.parquet", "pyarrow-due-naive-ns.parquet"),
    *("spark-int96.parquet", "spark-ntz.parquet"),
}
NO_LINES = "not a JSON object: "
# The ids that are read, how many records are refused, and the beginning of the first reason.
REFUSED = {
    "duckdb-array.ndjson": ("e", 6, NO_LINES),
    "duckdb-pipes.csv": ("", 1, "the header has no column id, due"),
    "duckdb-without-header.csv": ("", 1, "the header has no column id, due"),
    "excel-german.csv": ("", 5, "due is not a time: '31.01.2026 08:00'"),
    "excel-separator-line.csv": ("", 1, "the header has no column id, due"),
    "excel-serials.csv": ("", 5, "due is 46053.333333, which looks like days: in a spreadsheet it is 2026-01-31"),
    "jq-pretty.ndjson": ("", 30, NO_LINES),
    "pandas-array.ndjson": ("", 1, NO_LINES),
    "pandas-epoch-us.jsonl": ("", 5, "due is 1769846400000000, which looks like microseconds"),
    "pandas-latin-1.csv": ("abcd", 1, "byte 30 of the line is not UTF-8"),
    "pandas-utf-16.csv": ("", 1, "the header can't be read: the text is UTF-16"),
    "polars-duration.parquet": ("", 5, "d can't be JSON: a duration[us] has no form in it"),
    "polars-iso.csv": ("", 5, "due is not a time: 'iso:strict'"),  # this version writes it so
    "polars-never-quoted.csv": ("acde", 2, "the row has 5 cells"),
    "pyarrow-binary.parquet": ("", 5, "id is not text"),
    "pyarrow-due-microseconds.parquet": ("", 5, "due is 1769846400000000, which looks like microseconds"),
    "pyarrow-due-seconds.parquet": ("", 5, "due is 1769846400, which looks like seconds"),
    "pyarrow-other-names.parquet": ("", 1, "the schema has no column id, due"),
    "python-indented.ndjson": ("", 6, NO_LINES),
    "spark-interval.parquet": ("", 5, NO_ZONE),
    "spark-usual.csv": ("abde", 1, "not a row of CSV: ',' expected after '\"'"),  # it escapes a quote by a backslash
    "spark-variant.parquet": ("", 5, "v can't be JSON: it is a VARIANT"),
}
# Files that say something else: the key of the second record, the due time and the text of the third.
OTHER = {
    "duckdb-null-as-text.csv": ("NULL", DUE_MS + 500, 'with "quotes"'),
    "jq-epoch.ndjson": (None, DUE_MS, 'with "quotes"'),
    "pandas-escaped.csv": (None, DUE_MS + 500, 'with \\"quotes\\"'),
    "pandas-na-as-text.csv": ("NULL", DUE_MS + 500, 'with "quotes"'),
    "polars-null-as-text.csv": ("null", DUE_MS + 500, 'with "quotes"'),
}


def test_there_are_at_least_100_files_and_each_exception_is_one_of_them() -> None:
    assert len(FILES) >= 100
    assert set(FILES) >= NAIVE | set(REFUSED) | set(OTHER)


@pytest.mark.parametrize("name", sorted(set(FILES) - NAIVE - set(REFUSED) - set(OTHER)))
def test_five_records_are_read_from_a_file_of_another_writer__D1(name: str) -> None:
    assert read(name) == (RECORDS, [])


@pytest.mark.parametrize("name", sorted(NAIVE))
def test_times_without_a_zone_are_refused_and_read_with_one__D1(name: str) -> None:
    records, reasons = read(name)
    assert (records, len(reasons)) == ([], 5)
    assert reasons[0].replace(" 08", "T08").startswith(NO_ZONE)
    assert read(name, Columns(zone="UTC")) == (RECORDS, [])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_meant_so_is_refused_with_its_reason__D2(name: str) -> None:
    records, reasons = read(name)
    ids, count, reason = REFUSED[name]
    assert ("".join(record[0] for record in records), len(reasons)) == (ids, count)
    assert reasons[0].startswith(reason)


@pytest.mark.parametrize("name", OTHER)
def test_what_a_file_says_is_not_guessed_to_be_something_else__D1(name: str) -> None:
    records, reasons = read(name)
    assert (len(records), reasons) == (5, [])
    assert (records[1][1], *records[2][2:]) == OTHER[name]


def test_a_file_with_other_names_is_read_by_them__D1() -> None:
    columns = Columns(id="order", key="customer?", due="when")
    assert read("pyarrow-other-names.parquet", columns) == (RECORDS, [])
