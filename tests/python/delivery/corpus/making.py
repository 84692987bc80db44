"""Makes the cases of the corpus: one broken record, alone or between two good ones."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

OK = ""
DUE_MS = 1_700_000_000_005


class Case(NamedTuple):
    """`name` describes the error; `format` is `ndjson`, `csv` or `parquet`."""

    name: str
    format: str
    data: bytes
    outcomes: Sequence[str]


def ndjson(name: str, record: str | bytes, reason: str) -> Case:
    """One record between two good ones."""
    good = b'{"id":"good","due":%d}\n' % DUE_MS
    data = record.encode() if isinstance(record, str) else record
    return Case(name, "ndjson", good + data + b"\n" + good, [OK, reason, OK])


def csv(name: str, row: str | bytes, reason: str, header: str = "id,due,payload") -> Case:
    """One row between two good ones."""
    good = b"good,%d" % DUE_MS + b"," * (header.count(",") - 1) + b"\n"
    data = row.encode() if isinstance(row, str) else row
    return Case(name, "csv", header.encode() + b"\n" + good + data + b"\n" + good, [OK, reason, OK])


def parquet(name: str, reason: str, **columns: Any) -> Case:
    """One row, in columns of its own types."""
    table = pa.table({"id": ["a"], "due": [DUE_MS]} | columns)
    out = io.BytesIO()
    pq.write_table(table, out)
    return Case(name, "parquet", out.getvalue(), [reason])


def without_due() -> bytes:
    """A file without a row, and without a column that says when."""
    out = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), out)
    return out.getvalue()


def message(**fields: str) -> str:
    """The JSON of a good message with these fields replaced; they are given as JSON."""
    members = {"id": '"a"', "due": str(DUE_MS)} | fields
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items() if value) + "}"


def nested(levels: int) -> str:
    """Arrays nested to this depth."""
    return "[" * levels + "]" * levels
