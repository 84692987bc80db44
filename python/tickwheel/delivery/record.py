"""A record from a source: its place in the input, its bytes, and its fields or the error in them."""

from typing import NamedTuple

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Fields


class Record(NamedTuple):
    """`source` and `line` (from 1, where the record begins) are its place; `data` is the original record."""

    source: str
    line: int
    data: bytes
    content: Fields | BadRecord

    def fields(self) -> Fields:
        """The fields. Errors: `BadRecord` if the record could not be read."""
        if isinstance(self.content, BadRecord):
            raise self.content
        return self.content
