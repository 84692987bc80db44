"""Finds numbers in Thrift's compact protocol, in which a Parquet file has its footer and the headers of its pages.

A value is found by its place, and no object is made for the others, as a footer can have some megabytes.
Errors of all functions: `IndexError` if the bytes end too early, `ValueError` if they are something else.
"""

from collections.abc import Iterator
from typing import NamedTuple

I32, I64, LIST, STRUCT = 5, 6, 9, 12
_BYTE, _DOUBLE, _BINARY, _SET, _MAP = 3, 7, 8, 10, 11
_MOST_NESTED = 64  # as in the library that pyarrow reads the same bytes with


class Struct:
    """A structure at a place in the bytes. `end`: where it ends."""

    def __init__(self, data: bytes, at: int, depth: int = _MOST_NESTED) -> None:
        self._data = data
        self._starts: dict[tuple[int, int], int] = {}  # of a field that comes twice, the last one counts
        field = 0
        while byte := data[at]:
            at += 1
            kind = byte & 15
            if byte >> 4:
                field += byte >> 4
            else:
                field, at = _number(data, at)
            self._starts[field, kind] = at
            if kind > 2:  # 1 and 2 are true and false, without bytes
                at = _end(data, at, kind, depth)
        self.end = at + 1

    def number(self, field: int, kind: int = I32, otherwise: int = 0) -> int:
        """The number, or `otherwise` if there is none of this kind."""
        start = self._starts.get((field, kind))
        if start is None:
            return otherwise
        bits = 32 if kind == I32 else 64
        value = _number(self._data, start)[0]
        return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)

    def struct(self, field: int) -> "Struct | None":
        """The structure in it, if there is one."""
        start = self._starts.get((field, STRUCT))
        return None if start is None else Struct(self._data, start)

    def structs(self, field: int) -> "Iterator[Struct]":
        """The structures of a list in it, one after the other."""
        start = self._starts.get((field, LIST))
        if start is None:
            return
        items = _Items.at(self._data, start)
        if items.kinds != [STRUCT]:
            raise ValueError("a list has no structures")
        at = items.start
        for _ in range(items.length):
            found = Struct(self._data, at)
            yield found
            at = found.end


class _Items(NamedTuple):
    """A list, a set or a map: of each item the kinds of its values."""

    length: int
    kinds: list[int]
    start: int

    @classmethod
    def at(cls, data: bytes, at: int, *, is_map: bool = False) -> "_Items":
        if is_map:
            count, at = _varint(data, at)
            return cls(count, [data[at] >> 4, data[at] & 15], at + 1) if count else cls(0, [], at)
        count, kind = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _varint(data, at)
        return cls(count, [kind], at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _end(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where the value ends."""
    if kind <= _BYTE:
        return at + 1
    if kind < _DOUBLE:
        return _varint(data, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if depth == 0 or kind > STRUCT:
        raise ValueError("a value is nested too deep, or of an unknown kind")
    if kind == STRUCT:
        return Struct(data, at, depth - 1).end
    items = _Items.at(data, at, is_map=kind == _MAP)
    at = items.start
    for _ in range(items.length):
        for of in items.kinds:
            if at > len(data):
                raise IndexError("the bytes end too early")
            at = _end(data, at, of, depth - 1)
    return at
