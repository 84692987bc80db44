"""What an export has: its folders, and `upgrade.json`. A new checkpoint reads it, whatever format was exported."""

from enum import IntEnum
from typing import Final

import msgspec

from tickwheel.spark.upgrade.sources import Source

NAME: Final = "upgrade.json"


class Kind(IntEnum):
    """The kinds of rows."""

    GIVEN = 0
    """A message that a deliverer has, or may have, or may have delivered before it was lost."""
    HELD = 1
    """Any other message."""
    CONTROL = 2
    """A recurring message, a cancel or a reschedule."""
    LETTER = 3
    """A dead letter that no deliverer has for certain."""
    LEFT_OUT = 4
    """A reschedule that may be done, and would now move another occurrence."""
    DONE = 5
    """A deliverer has it, and nothing that is held needs it."""


FOLDERS: Final = {
    Kind.GIVEN: "given",
    Kind.HELD: "held",
    Kind.CONTROL: "controls",
    Kind.LETTER: "dead-letters",
    Kind.LEFT_OUT: "left-out",
}
TAKEN_IN: Final = (Kind.GIVEN, Kind.HELD, Kind.CONTROL)
"""By a new checkpoint, in this order."""


class Upgrade(msgspec.Struct):
    """What was exported: `upgrade.json`.

    `held`: messages, of which `given` are also at a deliverer, or may be. `controls`: recurring messages, cancels, and
    reschedules. `other_content`: records whose content differs from that of their message.
    """

    version: str
    checkpoint: str
    format: int
    micro_batch: int
    held: int
    given: int
    controls: int
    dead_letters: int
    left_out: int
    other_content: int
    deliverers: list[str]
    sources: list[Source]
