"""Makes the cases of the corpus: one broken record, alone or between two good ones."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

OK = ""


class Case(NamedTuple):
    """`name` describes the error; `format` is `ndjson`, `csv` or `parquet`."""

    name: str
    format: str
    data: bytes
    outcomes: Sequence[str]


def ndjson(name: str, record: str | bytes, reason: str) -> Case:
    """One record between two good ones."""
    good = b'{"id":"good","due":5}\n'
    data = record.encode() if isinstance(record, str) else record
    return Case(name, "ndjson", good + data + b"\n" + good, [OK, reason, OK])


def csv(name: str, row: str | bytes, reason: str, header: str = "id,due,payload") -> Case:
    """One row between two good ones."""
    good = b"good,5" + b"," * (header.count(",") - 1) + b"\n"
    data = row.encode() if isinstance(row, str) else row
    return Case(name, "csv", header.encode() + b"\n" + good + data + b"\n" + good, [OK, reason, OK])


def parquet(name: str, reason: str, **columns: Any) -> Case:
    """One row, in columns of its own types."""
    table = pa.table({"id": ["a"], "due": [5]} | columns)
    out = io.BytesIO()
    pq.write_table(table, out)
    return Case(name, "parquet", out.getvalue(), [reason])


def message(**fields: str) -> str:
    """The JSON of a good message with these fields replaced; they are given as JSON."""
    members = {"id": '"a"', "due": "5"} | fields
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items() if value) + "}"


def nested(levels: int) -> str:
    """Arrays nested to this depth."""
    return "[" * levels + "]" * levels
