"""The table of operations, as the engine has it: what each answer means over HTTP and on a command line (rule D16).

>>> reply("cancel", Answer.UNKNOWN)
Reply(status=202, exit_code=0, sentence='it has not come, and is cancelled when it comes')
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tickwheel._native import OPERATIONS, Answer


class Reply(NamedTuple):
    """The meaning of an answer. `exit_code`: 0 if the operation did its work, 1 if it was too late, 2 if refused."""

    status: int
    exit_code: int
    sentence: str


REPLIES: Final[Mapping[str, Mapping[Answer, Reply]]] = {
    name: {answer: Reply(*meaning) for answer, meaning in replies.items()} for name, (_, replies) in OPERATIONS.items()
}


def reply(operation: str, answer: Answer) -> Reply:
    """The meaning of this answer to this operation."""
    return REPLIES[operation][answer]
