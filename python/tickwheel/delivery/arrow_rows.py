"""Reads rows of Arrow record batches, from Parquet files and Arrow Flight, as fields of the one schema (rule D1).

- `id`, `key`, `op` and `payload_base64` are text; `delay_ms` is a number. In any column null means absent.
- `due` is a timestamp with a zone, rounded up to the millisecond, an integer of epoch milliseconds, or text as in CSV.
- A payload of text or bytes that is JSON stays as it is; other text is a JSON string, other bytes are bytes. A payload
  of another type becomes JSON by `arrow_json`; so do the columns that make up the payload where there is none.
- A batch may come from anywhere: it is checked before it is read, and converted in slices of at most `_ROWS` rows and
  about `_BYTES` bytes. An error in the schema or in a whole column makes every row a bad record, and reading goes on.

Whole columns become Python lists, never single cells: id, key, due and payload cost about 1.5 µs a row.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyarrow import types

from tickwheel.delivery.arrow_json import Unfit, is_binary, is_extension, is_text, json_cells, texts, through_dictionary
from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.lines import MAX_RECORD
from tickwheel.delivery.message import Cancel, Columns, Fields, Message, json_or_text
from tickwheel.delivery.times import number_or_text

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("due", pa.timestamp("ms", tz="UTC")),
        pa.field("delay_ms", pa.float64()),
        pa.field("op", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("payload_base64", pa.string()),
    ]
)
"""D1's schema in Arrow, as `to_arrow` writes it; any schema with an id can be read. JSON goes into `payload`. Bytes go
into `payload_base64`, because in `payload` bytes that happen to be text or JSON are read as text or JSON.
"""

_ROWS = 1024
_BYTES = 4 << 20
_KEPT = 1024

_AS_BYTES = [
    (types.is_string, pa.binary()),
    (types.is_large_string, pa.large_binary()),
    (types.is_string_view, pa.binary_view()),
]
_encode = msgspec.json.Encoder().encode
_List: TypeAlias = list[object]


class Rows:
    """Some rows of a batch as Python values: `contents` in their order, and the original row of each."""

    def __init__(self, contents: Sequence[Fields | BadRecord], shown: dict[str, _List], payload: str) -> None:
        self.contents = contents
        self._shown = shown
        self._payload = payload

    def data(self, at: int) -> bytes:
        """The row as a line of NDJSON, for the dead letters; a long one is truncated. About 1 µs."""
        cells = {name: column[at] for name, column in self._shown.items() if column[at] is not None}
        if isinstance(cells.get(self._payload), bytes) and "payload_base64" not in cells:
            cells["payload_base64"] = cells.pop(self._payload)
        data = _encode(cells)
        return data if len(data) <= MAX_RECORD else data[:_KEPT].decode(errors="ignore").encode()


def read_rows(given: pa.RecordBatch | pa.Table, columns: Columns) -> Iterator[Rows]:
    """All rows in their order, converted slice by slice."""
    try:
        fault = columns.fault("schema", given.schema.names)
    except UnicodeDecodeError:
        fault = BadRecord("the schema has a name that is not UTF-8", "names in UTF-8")
        given = given.rename_columns([f"column {number}" for number in range(1, given.num_columns + 1)])
    for batch in [given] if isinstance(given, pa.RecordBatch) else given.to_batches():
        broken = {at: why for at, column in enumerate(batch.columns) if (why := _broken(column))}
        bad = fault
        for at, why in broken.items():
            bad = BadRecord(
                f"the column {batch.schema.names[at]} is broken: {why}", "arrays that pass validate(full=True)"
            )
        sound = batch.select([at for at in range(batch.num_columns) if at not in broken])
        step = max(1, min(_ROWS, _BYTES * batch.num_rows // max(1, sound.nbytes)))
        for start in range(0, batch.num_rows, step):
            count = min(step, batch.num_rows - start)
            rows = sound.slice(start, count)
            yield _lay_out(rows, columns) if bad is None else Rows([bad] * count, _as_json(rows), "")


def to_arrow(items: Iterable[Message | Cancel]) -> pa.RecordBatch:
    """Messages and cancels as a batch of `MESSAGE_SCHEMA`, from which the same ones are read back."""
    return pa.RecordBatch.from_pylist([_row(item) for item in items], schema=MESSAGE_SCHEMA)


def _row(item: Message | Cancel) -> dict[str, object]:
    if isinstance(item, Cancel):
        return {"id": item.id, "key": item.key, "op": "cancel"}
    when = {"due": item.due_ms} if item.delay_ms is None else {"delay_ms": item.delay_ms}
    if isinstance(item.payload, bytes):
        return {"id": item.id, "key": item.key, **when, "payload_base64": msgspec.to_builtins(item.payload)}
    return {"id": item.id, "key": item.key, **when, "payload": bytes(item.payload)}


def _broken(array: pa.Array) -> str | None:
    """Why the array can't be read, or `None`. Text that is not UTF-8 is an error of its row only."""
    try:
        _as_bytes(array).validate(full=True)
    except pa.ArrowException as error:
        return " ".join(str(error).split())[:200]
    return None


def _as_bytes(array: pa.Array) -> pa.Array:
    if types.is_dictionary(array.type):
        array.indices.validate(full=True)
        return pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary))
    for is_kind, as_bytes in _AS_BYTES:
        if is_kind(array.type):
            return array.view(as_bytes)
    return array


def _lay_out(batch: pa.RecordBatch, columns: Columns) -> Rows:
    names, known = batch.schema.names, columns.known()
    parts: dict[str, _List] = {}
    shown: dict[str, _List] = {}
    bad: dict[int, BadRecord] = {}
    for part, convert in _PARTS.items():
        name = getattr(columns, part, None) or part
        parts[part] = [None] * batch.num_rows
        if name in names:
            shown[name] = parts[part] = _fit(name, convert(batch.column(name)), bad)
    others = {name: _fit(name, _raws(batch.column(name)), bad) for name in names if name not in known}
    contents: list[Fields | BadRecord] = list(map(Fields, *parts.values(), _objects(others, batch.num_rows)))
    for at, why in bad.items():
        contents[at] = why
    return Rows(contents, {**shown, **others}, columns.name("payload"))


def _fit(name: str, cells: _List, bad: dict[int, BadRecord]) -> _List:
    """Adds to `bad` the rows with an unfit cell, and replaces such a cell with the text that shows it."""
    for at, cell in enumerate(cells):
        if isinstance(cell, Unfit):
            bad.setdefault(at, cell.bad(name))
            cells[at] = cell.shown
    return cells


def _objects(columns: dict[str, _List], count: int) -> Iterable[dict[str, object]]:
    if not columns:
        return [{}] * count
    rows = zip(*columns.values(), strict=True)
    return ({name: cell for name, cell in zip(columns, row, strict=True) if cell is not None} for row in rows)


def _as_json(batch: pa.RecordBatch) -> dict[str, _List]:
    shown: dict[str, _List] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        while name in shown:
            name += " again"
        shown[name] = _fit(name, _raws(column), {})
    return shown


def _plain(array: pa.Array) -> _List:
    """Text and numbers as Python values; all else as JSON, which `check` accepts as neither."""
    if is_text(array.type):
        return [*texts(array)]
    if types.is_integer(array.type) or types.is_floating(array.type) or types.is_boolean(array.type):
        found: _List = array.to_pylist()
        return found
    if types.is_dictionary(array.type):
        return through_dictionary(array, _plain)
    if is_extension(array.type):
        return _plain(array.storage)
    return [msgspec.Raw(_encode(cell.shown)) if isinstance(cell, Unfit) else cell for cell in _raws(array)]


def _due(array: pa.Array) -> _List:
    if types.is_timestamp(array.type):
        return _milliseconds(array) if array.type.tz is not None else _without_zone(array)
    if types.is_dictionary(array.type):
        return through_dictionary(array, _due)
    return [number_or_text(cell) if isinstance(cell, str) else cell for cell in _plain(array)]


def _milliseconds(array: pa.Array) -> _List:
    instants = array.cast(pa.int64()).to_pylist()
    if array.type.unit == "ms":
        return [*instants]
    if array.type.unit == "s":
        return [None if instant is None else instant * 1000 for instant in instants]
    per_ms = {"us": 1000, "ns": 1_000_000}[array.type.unit]
    return [None if instant is None else -(-instant // per_ms) for instant in instants]


def _without_zone(array: pa.Array) -> _List:
    return [None if text is None else text.replace(" ", "T") for text in array.cast(pa.string()).to_pylist()]


def _payload(array: pa.Array) -> _List:
    if is_text(array.type):
        return [cell if cell is None else _json_or_bytes(cell) for cell in texts(array)]
    if is_binary(array.type):
        return [cell if cell is None else _json_or_bytes(cell) for cell in array.to_pylist()]
    if types.is_dictionary(array.type):
        return through_dictionary(array, _payload)
    if is_extension(array.type):
        return _payload(array.storage)
    return _raws(array)


def _json_or_bytes(cell: str | bytes) -> object:
    try:
        text = cell if isinstance(cell, str) else cell.decode()
    except UnicodeDecodeError:
        return cell
    try:
        return json_or_text(text)
    except BadRecord as bad:
        return Unfit(bad.reason, text[:_KEPT])


def _raws(array: pa.Array) -> _List:
    return [msgspec.Raw(cell) if isinstance(cell, bytes) else cell for cell in json_cells(array)]


# In the order of `Fields`.
_PARTS = {
    "id": _plain,
    "key": _plain,
    "due": _due,
    "delay_ms": _plain,
    "op": _plain,
    "payload": _payload,
    "payload_base64": _plain,
}
