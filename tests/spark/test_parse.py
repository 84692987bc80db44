"""From lines, files and rows to messages, in the workers' own code, without a JVM (rules D1, D2)."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tickwheel.delivery.handed import HANDED
from tickwheel.delivery.message import Columns
from tickwheel.spark.parse import Parse, records_of_files, records_of_lines, records_of_rows

USUAL = Columns()


def found(read: Any, *batches: Any) -> list[dict[str, Any]]:
    out = [*Parse(partial(read, USUAL), USUAL)(iter(batches))]
    assert all(batch.schema == HANDED for batch in out)
    return [one for batch in out for one in batch.to_pylist()]


def test_each_value_is_a_record_with_the_place_it_came_from__D1_S8() -> None:
    values = [
        b'{"id": "a", "due": 5, "payload": [1.50]}',
        b'{"id": "b", "op": "cancel", "key": "k"}',
        b"\xff",
        None,
        b"{}\n{}",
    ]
    lines = pa.record_batch([values, ["t/0"] * 5, [7, 8, 9, 10, 11]], ["value", "source", "line"])
    a, b, *bad = found(records_of_lines, lines)
    assert (a["id"], a["due_ms"], a["payload"], a["is_json"], a["source"], a["line"]) == (
        "a",
        5,
        b"[1.50]",
        True,
        "t/0",
        7,
    )
    assert (b["id"], b["key"], b["due_ms"], b["reason"]) == ("b", "k", None, None)
    assert [(one["line"], one["reason"]) for one in bad] == [
        (9, "byte 1 of the line is not UTF-8"),
        (10, "the value holds 0 records"),
        (11, "the value holds 2 records"),
    ]
    assert bad[0]["payload"] == b"\xff"


def test_files_of_every_format_are_read_and_a_broken_one_ends_nothing__D1_D2(tmp_path: Path) -> None:
    (tmp_path / "a b.ndjson").write_text('{"id": "a", "due": 5}\n{"id": ""}\n')
    (tmp_path / "c.csv").write_text("id,due,x\nc,6,1\n")
    pq.write_table(pa.table({"id": ["p"], "due": [7]}), tmp_path / "p.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    names = ["a b.ndjson", "broken.parquet", "none.ndjson", "c.csv", "p.parquet"]
    rows = found(records_of_files, pa.record_batch([[(tmp_path / name).as_uri() for name in names]], ["path"]))
    assert [(one["id"], one["due_ms"]) for one in rows if one["reason"] is None] == [("a", 5), ("c", 6), ("p", 7)]
    bad = {Path(one["source"]).name: one["reason"] for one in rows if one["reason"]}
    assert bad.keys() == {"a b.ndjson", "broken.parquet", "none.ndjson"}
    assert bad["a b.ndjson"] == "id is empty"
    assert "can't be read" in bad["none.ndjson"]


def test_rows_of_any_frame_are_messages_by_their_columns__D1() -> None:
    rows = pa.record_batch([["a", None], [5, 6], ["x", "y"]], ["id", "due", "other"])
    a, bad = found(lambda columns, batches: records_of_rows(columns, "rows", batches), rows)
    assert (a["id"], a["payload"], a["source"]) == ("a", b'{"other":"x"}', "rows")
    assert (bad["reason"], bad["payload"]) == ("id is missing", b'{"due":6,"other":"y"}')


def test_many_records_come_in_batches_of_some_thousand__D8() -> None:
    values = [b'{"id": "%d", "due": 5}' % n for n in range(5_000)]
    lines = pa.record_batch([values, ["t"] * 5_000, [*range(5_000)]], ["value", "source", "line"])
    batches = [*Parse(partial(records_of_lines, USUAL), USUAL)(iter([lines]))]
    assert [batch.num_rows for batch in batches] == [2_000, 2_000, 1_000]
