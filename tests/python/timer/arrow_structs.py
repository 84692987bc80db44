"""Arrow's C structs, built by hand: producers that do what no library would do, and count what is released.

Nothing of pyarrow is needed. `ARRAY.format(...)` says which producer; the fields of a struct may be given by name.
"""

import ctypes
import errno
import itertools
from array import array
from collections.abc import Callable
from typing import Any

_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Fill = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Text = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Schema(ctypes.Structure):
    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class Array(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class Stream(ctypes.Structure):
    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def fields(values: list[int], **changes: Any) -> dict[str, Any]:
    """An array struct's fields; `skew` bytes stand before the values, `valid` is the bitmap."""
    return {"values": values, **changes}


class _Producer:
    """Keeps alive what the structs point to, and counts, by struct, what was made and what was released."""

    def __init__(self) -> None:
        self.made = {"schema": 0, "array": 0, "stream": 0}
        self.released = dict(self.made)
        self._kept: list[Any] = []

    def keep(self, what: Any) -> Any:
        self._kept.append(what)
        return what

    def address(self, function: Any) -> int | None:
        return ctypes.cast(self.keep(function), ctypes.c_void_p).value

    def _release(self, kind: str, struct: type[ctypes.Structure]) -> int | None:
        self.made[kind] += 1

        def release(pointer: int) -> None:
            self.released[kind] += 1
            struct.from_address(pointer).release = None  # type: ignore[attr-defined]

        return self.address(_Release(release))

    def fill_schema(self, schema: Schema, **changes: Any) -> None:
        for name, value in (
            {"format": b"l", "name": b"", "release": self._release("schema", Schema)} | changes
        ).items():
            setattr(schema, name, value)

    def fill_array(
        self, struct: Array, values: list[int], skew: int = 0, valid: bytes | None = None, **changes: Any
    ) -> None:
        data = self.keep(ctypes.create_string_buffer(b"\0" * skew + array("q", values).tobytes()))
        bits = None if valid is None else ctypes.addressof(self.keep(ctypes.create_string_buffer(valid)))
        buffers = self.keep((ctypes.c_void_p * 2)(bits, ctypes.addressof(data) + skew))
        plain = {
            "length": len(values),
            "n_buffers": 2,
            "buffers": ctypes.addressof(buffers),
            "release": self._release("array", Array),
        }
        for name, value in (plain | changes).items():
            setattr(struct, name, value)

    def capsule(self, struct: ctypes.Structure, name: bytes) -> object:
        return _new_capsule(ctypes.addressof(self.keep(struct)), self.keep(name), None)


class ArrayProducer(_Producer):
    """Has `__arrow_c_array__`, and no destructor for its capsules: nothing is released but by the reader."""

    def __init__(
        self,
        values: list[int],
        *,
        names: tuple[bytes, bytes] = (b"arrow_schema", b"arrow_array"),
        schema: dict[str, Any] | None = None,
        returns: Callable[[object, object], object] = lambda schema, array: (schema, array),
        **changes: Any,
    ) -> None:
        super().__init__()
        self._schema, self._array = Schema(), Array()
        self.fill_schema(self._schema, **schema or {})
        self.fill_array(self._array, values, **changes)
        self._names, self._returns = names, returns

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self._returns(self.capsule(self._schema, self._names[0]), self.capsule(self._array, self._names[1]))


class StreamProducer(_Producer):
    """Has `__arrow_c_stream__`. A chunk is a list of values, `fields(...)`, or the error code that ends the stream.

    `claims` is what a failing call leaves in the struct that it should not have touched.
    """

    def __init__(
        self,
        *chunks: Any,
        name: bytes = b"arrow_array_stream",
        schema: dict[str, Any] | None = None,
        schema_code: int = 0,
        error: bytes | None = b"the disk is gone",
        endless: bool = False,
        claims: bool = False,
        **changes: Any,
    ) -> None:
        super().__init__()
        self._chunks = itertools.repeat(chunks[0]) if endless else iter(chunks)
        self._name = name
        self.stream = Stream(
            get_schema=self.address(_Fill(lambda _, to: self._get_schema(to, schema, schema_code))),
            get_next=self.address(_Fill(lambda _, to: self._get_next(to, claims))),
            get_last_error=self.address(
                _Text(lambda _: ctypes.cast(self.keep(error), ctypes.c_void_p).value if error else None)
            ),
            release=self._release("stream", Stream),
        )
        for field, value in changes.items():
            setattr(self.stream, field, value)

    def _get_schema(self, to: int, changes: dict[str, Any] | None, code: int) -> int:
        if not code:
            self.fill_schema(Schema.from_address(to), **changes or {})
        return code

    def _get_next(self, to: int, claims: bool) -> int:
        chunk = next(self._chunks, None)
        struct = Array.from_address(to)
        if chunk is None:
            struct.release = None
        elif isinstance(chunk, int):
            if claims:
                struct.release = 1  # no function stands there
            return chunk
        elif isinstance(chunk, dict):
            self.fill_array(struct, **chunk)
        else:
            self.fill_array(struct, chunk)
        return 0

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.capsule(self.stream, self._name)


EIO, ENOMEM = errno.EIO, errno.ENOMEM
