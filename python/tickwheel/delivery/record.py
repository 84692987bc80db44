"""A record as a source gave it: where it stood, its bytes, and its fields or what is wrong with them."""

from typing import NamedTuple

from tickwheel.delivery.errors import BadRecord
from tickwheel.delivery.message import Fields


class Record(NamedTuple):
    """`source` and `line` (from 1, where the record begins) are for people; `data` is the record as it stood."""

    source: str
    line: int
    data: bytes
    content: Fields | BadRecord

    def fields(self) -> Fields:
        """The fields; raises the `BadRecord` if the record could not be read."""
        if isinstance(self.content, BadRecord):
            raise self.content
        return self.content
