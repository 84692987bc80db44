"""The pages of a Parquet column, by their headers: what they take once they are decoded (rule D12).

The footer says little about that, and a short file can hold much: a dictionary's value of 27 MB in each of a million
rows takes 2 kB. Only the headers, which the reader of the file obeys too, give the sizes. They are read here without
the data, but for a dictionary, which is read for its longest value.

The footer is read here a second time, as pyarrow shows no metadata of columns without ending the process if some of it
is broken.
"""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from tickwheel.delivery.base.errors import BadRecord
from tickwheel.delivery.read.thrift import I64, Struct

WHOLE = "an undamaged Parquet file"

_DATA_V1, _DICTIONARY, _DATA_V2 = 0, 2, 3  # types of pages
_HEADERS = {_DATA_V1: 5, _DICTIONARY: 7, _DATA_V2: 8}  # the field with the header of each
_PLAIN_DICTIONARY, _DELTA_BYTE_ARRAY, _RLE_DICTIONARY = 2, 7, 8  # encodings
_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_HEADER_BYTES, _MOST_HEADER_BYTES = 1 << 10, 16 << 20
_MOST_LOOKED_AT = 1 << 20  # values of a dictionary; writers make fewer


class Chunk(NamedTuple):
    """A column of a row group: where its pages begin, how many values they have, and how they are compressed."""

    start: int
    values: int
    codec: int


class Page(NamedTuple):
    """A page. `compressed`: its bytes in the file. `size`: its decoded bytes. `longest`: no value of a dictionary
    has more bytes.
    """

    is_dictionary: bool
    values: int
    compressed: int
    size: int
    encoding: int
    longest: int

    @property
    def uses_dictionary(self) -> bool:
        """Whether its values are places in a dictionary."""
        return self.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY)

    @property
    def uses_prefixes(self) -> bool:
        """Whether a value can be a part of the one before, and some bytes."""
        return self.encoding == _DELTA_BYTE_ARRAY


def row_groups(stream: BinaryIO) -> Iterator[list[Chunk]]:
    """The columns of each row group. Errors: those of `thrift`."""
    end = stream.seek(0, 2)
    size = int.from_bytes(_bytes_at(stream, end - 8, 4), "little")
    for group in Struct(_bytes_at(stream, end - 8 - size, size), 0).structs(4):
        yield [_chunk(column.struct(3)) for column in group.structs(1)]


def _chunk(of: Struct | None) -> Chunk:
    if of is None:
        raise ValueError("a column has no metadata")
    start, dictionary = of.number(9, I64), of.number(11, I64)
    return Chunk(dictionary if 0 < dictionary < start else start, of.number(5, I64), of.number(4))


def pages_of(stream: BinaryIO, chunk: Chunk, most: int) -> Iterator[Page]:
    """The pages of a column in a row group, until one can't be read or is a second dictionary: there pyarrow stops
    too. `most`: a larger dictionary is not decoded. A page that ends behind the file is a `BadRecord`, as pyarrow
    makes room for what a page claims, up to 2 GiB, before it reads it.
    """
    file_end = stream.seek(0, 2)
    at, left, has_dictionary = chunk.start, chunk.values, False
    while left > 0 and (found := _header(stream, at)):
        header, at = found
        kind, size, compressed = header.number(1, otherwise=-1), header.number(2), header.number(3)
        of = header.struct(_HEADERS.get(kind, 0))
        if size < 0 or compressed < 0 or (has_dictionary and kind == _DICTIONARY):
            return
        if compressed > file_end - at:
            raise BadRecord(f"a page of it has {compressed:,} bytes, and the file ends before", WHOLE)
        has_dictionary |= kind == _DICTIONARY
        values = of.number(1) if of else 0
        longest = size
        if kind == _DICTIONARY and size <= most:
            longest = longest_of(_decoded(stream, at, compressed, size, chunk.codec), values, size)
        encoding = of.number(4 if kind == _DATA_V2 else 2) if of else 0
        yield Page(kind == _DICTIONARY, values, compressed, size, encoding, longest)
        left -= 0 if kind == _DICTIONARY else values
        at += compressed


def _header(stream: BinaryIO, at: int) -> tuple[Struct, int] | None:
    """The header at this place, and where it ends; `None` if it can't be read."""
    size = _HEADER_BYTES
    while True:
        data = _bytes_at(stream, at, size)
        try:
            header = Struct(data, 0)
            return header, at + header.end
        except IndexError:  # it is longer
            if len(data) < size or size >= _MOST_HEADER_BYTES:
                return None
            size *= 4
        except ValueError:
            return None


def _bytes_at(stream: BinaryIO, at: int, size: int) -> bytes:
    if not 0 <= at < 1 << 62:
        return b""
    stream.seek(at)
    return stream.read(max(0, size))


def _decoded(stream: BinaryIO, at: int, compressed: int, size: int, codec: int) -> bytes:
    """The bytes of a page, or none if they can't be decoded."""
    import pyarrow as pa

    data = _bytes_at(stream, at, compressed)
    try:
        if name := _CODECS[codec]:
            data = pa.decompress(data, decompressed_size=size, codec=name, asbytes=True)
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return b""
    return data


def longest_of(data: bytes, values: int, otherwise: int = 0) -> int:
    """No value of the dictionary has more bytes. Each one follows its length. Of many values, only the first ones are
    looked at, and none once the rest has no room for a longer one.
    """
    at = longest = 0
    for left in range(values, 0, -1):
        room = len(data) - at - 4 * left
        if room <= longest or values - left == _MOST_LOOKED_AT:
            longest = max(longest, room)
            break
        length = int.from_bytes(data[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return longest if data else otherwise
