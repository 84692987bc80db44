"""Converts Arrow columns to JSON, a column at a time, for the values of a payload (rule D1).

- Booleans, numbers and text as JSON has them; decimals as numbers, with their digits (`1.50`); binary as base64 text.
- Times as text: dates, times of day and timestamps by ISO 8601, those with a zone as RFC 3339 in UTC (`...Z`).
- Structs and maps with text keys are objects, lists are arrays; inside them a null is `null`.
- A value without such a form is `Unfit`: NaN and infinity, times outside the years 0000 to 9999, a name that occurs
  twice, text that is not UTF-8, and all other types (durations, intervals, unions).

The arrays must pass `array.validate(full=True)`, except that text need not be UTF-8.
"""

import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise, repeat
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import MAX_PAYLOAD

ALLOWED = "text, finite numbers, booleans, binary, times from year 0 to 9999, and structs, lists and maps of these"


class Unfit(NamedTuple):
    """A value that has no form in JSON: the reason, and some text that shows which value it is."""

    why: str
    shown: str

    def bad(self, name: str) -> BadRecord:
        """The error of a record whose column `name` holds this value."""
        return BadRecord(f"{name} can't be JSON: {self.why}", ALLOWED)


Cell: TypeAlias = bytes | Unfit | None
T = TypeVar("T")

_MAX_ITEMS = MAX_PAYLOAD // 2  # an item takes at least two bytes, with its comma
_encode = msgspec.json.Encoder().encode
_NUMBER = re.compile(r"-?\d+(\.\d+)?(E[+-]\d+)?", flags=re.ASCII)
_ISO_8601 = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?)?|\d\d:\d\d:\d\d(\.\d+)?", flags=re.ASCII)


def json_cells(array: pa.Array) -> list[Cell]:
    """The JSON of each value, `None` for a null.

    >>> json_cells(pa.array([{"a": 1.5, "b": [True, None]}, None]))
    [b'{"a":1.5,"b":[true,null]}', None]
    """
    for is_kind, convert in _KINDS:
        if is_kind(array.type):
            return convert(array)
    return _unfit(array, f"a {_shown(array.type)[:60]} has no form in it")


def is_text(type_: pa.DataType) -> bool:
    """Whether it is one of the three types of text."""
    return any(is_kind(type_) for is_kind in (types.is_string, types.is_large_string, types.is_string_view))


def is_binary(type_: pa.DataType) -> bool:
    """Whether it is one of the four types of bytes."""
    kinds = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(is_kind(type_) for is_kind in kinds)


def is_extension(type_: pa.DataType) -> bool:
    """Whether it stands for another type, its storage."""
    return isinstance(type_, pa.BaseExtensionType)


def texts(array: pa.Array) -> list[str | bytes | None]:
    """The values of an array of text, as bytes where they are not UTF-8, which Arrow does not check."""
    try:
        found: list[str | bytes | None] = array.to_pylist()
    except UnicodeDecodeError:
        cells = array.cast(pa.large_binary()).to_pylist()
        return [None if cell is None else _text_or_bytes(cell) for cell in cells]
    return found


def through_dictionary(array: pa.Array, convert: Callable[[pa.Array], list[T]]) -> list[T | None]:
    """Converts each distinct value of a dictionary array once; equal values share the result."""
    used = array.indices.drop_null().unique()
    cells = convert(array.dictionary.take(used))
    places = pc.index_in(array.indices, used).to_pylist()
    return [None if place is None else cells[place] for place in places]


def _text_or_bytes(cell: bytes) -> str | bytes:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return cell


def _unfit(array: pa.Array, why: str) -> list[Cell]:
    valid = array.is_valid().to_pylist()
    return [Unfit(why, _shown(array[at])) if is_valid else None for at, is_valid in enumerate(valid)]


def _shown(thing: pa.Scalar | pa.DataType) -> str:
    try:
        return str(thing)[:1000]
    except (ValueError, OverflowError):  # out of Python's range, or with a name that is not UTF-8
        return "value that can't be shown"


def _each(convert: Callable[[Any], Cell]) -> Callable[[pa.Array], list[Cell]]:
    return lambda array: [None if value is None else convert(value) for value in array.to_pylist()]


def _number(value: float) -> Cell:
    return _encode(value) if math.isfinite(value) else Unfit(f"{value} is not finite", f"{value}")


def _binary(value: bytes) -> Cell:
    return b'"' + b64encode(value) + b'"'


def _texts(array: pa.Array) -> list[Cell]:
    return [None if value is None else _text(value) for value in texts(array)]


def _text(value: str | bytes) -> Cell:
    return _encode(value) if isinstance(value, str) else Unfit("the text is not UTF-8", value.decode(errors="replace"))


def _decimals(array: pa.Array) -> list[Cell]:
    return [None if text is None else _decimal(text) for text in array.cast(pa.string()).to_pylist()]


def _decimal(text: str) -> Cell:
    return text.encode() if _NUMBER.fullmatch(text) else Unfit("a decimal out of range", text)


def _times(array: pa.Array) -> list[Cell]:
    zone = ""
    if types.is_timestamp(array.type):  # without its zone, which Arrow may not know; the values are in UTC anyway
        zone = "Z" if array.type.tz is not None else ""
        array = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit))
    cells: list[Cell] = []
    for text in array.cast(pa.string()).to_pylist():
        iso = None if text is None else text.replace(" ", "T")
        if iso is None or _ISO_8601.fullmatch(iso):
            cells.append(None if iso is None else f'"{iso}{zone}"'.encode())
        else:
            cells.append(Unfit("a time out of range", text))
    return cells


def _structs(array: pa.Array) -> list[Cell]:
    try:
        names = [field.name for field in array.type]
    except UnicodeDecodeError:
        return _unfit(array, "a name in it is not UTF-8")
    keys = [_encode(name) for name in names]
    columns = [json_cells(array.field(at)) for at in range(len(names))]
    rows: Iterable[tuple[Cell, ...]] = zip(*columns, strict=True) if columns else repeat((), len(array))
    return _where_valid(array, [_object(keys, row) for row in rows])


def _lists(array: pa.Array) -> list[Cell]:
    lengths = [length or 0 for length in pc.list_value_length(array).to_pylist()]
    if sum(lengths) > _MAX_ITEMS:
        return _by_halves(array, _lists)
    cells = json_cells(array.flatten())  # not `cast` to one kind of list: from a list_view it loses values (pyarrow 26)
    ends = list(accumulate(lengths, initial=0))
    return _where_valid(array, [_joined(b"[", cells[start:end], b"]") for start, end in pairwise(ends)])


def _maps(array: pa.Array) -> list[Cell]:
    ends = array.offsets.to_pylist() or [0]
    first, count = ends[0], ends[-1] - ends[0]
    if count > _MAX_ITEMS:
        return _by_halves(array, _maps)
    keys, items = json_cells(array.keys.slice(first, count)), json_cells(array.items.slice(first, count))
    parts = ((start - first, end - first) for start, end in pairwise(ends))
    return _where_valid(array, [_object(keys[start:end], items[start:end]) for start, end in parts])


def _by_halves(array: pa.Array, convert: Callable[[pa.Array], list[Cell]]) -> list[Cell]:
    """Converts by halves, so that a single value too large for a payload is refused unread: in Arrow a thousand million
    nulls take no memory.
    """
    if len(array) == 1:
        return [Unfit(f"it has more than {_MAX_ITEMS:,} items", _shown(array.type)[:60])]
    half = len(array) // 2
    return convert(array[:half]) + convert(array[half:])


def _object(keys: Sequence[Cell], cells: Sequence[Cell]) -> Cell:
    members: list[Cell] = []
    for key, cell in zip(keys, cells, strict=True):
        if not isinstance(key, bytes) or not key.startswith(b'"'):
            return Unfit("a map has a key that is not text", "a map")
        members.append(cell if isinstance(cell, Unfit) else key + b":" + (b"null" if cell is None else cell))
    if len(set(keys)) < len(keys):
        return Unfit("a name occurs twice in it", "an object")
    return _joined(b"{", members, b"}")


def _joined(left: bytes, cells: Sequence[Cell], right: bytes) -> Cell:
    parts: list[bytes] = []
    for cell in cells:
        if isinstance(cell, Unfit):
            return cell
        parts.append(b"null" if cell is None else cell)
    return left + b",".join(parts) + right


def _where_valid(array: pa.Array, cells: list[Cell]) -> list[Cell]:
    if array.null_count == 0:
        return cells
    return [cell if valid else None for cell, valid in zip(cells, array.is_valid().to_pylist(), strict=True)]


def _any(*kinds: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda type_: any(is_kind(type_) for is_kind in kinds)


_KINDS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Cell]]]] = [
    (is_text, _texts),
    (_any(types.is_integer, types.is_floating, types.is_boolean), _each(_number)),
    (is_binary, _each(_binary)),
    (types.is_decimal, _decimals),
    (_any(types.is_timestamp, types.is_date, types.is_time), _times),
    (types.is_struct, _structs),
    (types.is_map, _maps),
    (
        _any(
            types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view
        ),
        _lists,
    ),
    (types.is_null, lambda array: [None] * len(array)),
    (types.is_dictionary, lambda array: through_dictionary(array, json_cells)),
    (types.is_run_end_encoded, lambda array: json_cells(pc.run_end_decode(array))),
    (is_extension, lambda array: json_cells(array.storage)),
]
