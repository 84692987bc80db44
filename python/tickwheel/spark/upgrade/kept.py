"""What a shard keeps, whatever the format of its state."""

from collections.abc import Mapping
from typing import NamedTuple


class Messages(NamedTuple):
    """The rows of a chunk from `start` to before `stop` are messages, all due at `moved_to_ms` if that is given.
    `is_given`: a deliverer has them, or may have them, or may have delivered them before it was lost.
    """

    start: int
    stop: int
    moved_to_ms: int | None
    is_given: bool


class Controls(NamedTuple):
    """All `rows` of a chunk are recurring messages, cancels, reschedules or dead letters. `position`: the place of the
    chunk in order of arrival. `is_given`: a deliverer may have them; `is_taken`: it has them.
    `is_for_rules`: they change recurring messages. `begins_anew`: what is known of occurrences is lost in a record.
    """

    position: int
    rows: int
    is_given: bool
    is_taken: bool
    is_for_rules: bool
    begins_anew: bool


class Shard(NamedTuple):
    """What a shard keeps. `chunks`: the places in each chunk, by its number. `address`: of its deliverer, or empty."""

    address: str
    messages: int
    controls: int
    chunks: Mapping[int, list[Messages | Controls]]
