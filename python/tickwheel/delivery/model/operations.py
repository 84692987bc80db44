"""The table of operations, as the engine has it: what each answer means over HTTP and on a command line (rule D16).

>>> reply("cancel", Answer.UNKNOWN)
Reply(status=202, exit_code=0, sentence='it has not come, and is cancelled when it comes')
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tickwheel._native import OPERATIONS, Answer


class Reply(NamedTuple):
    """What an answer means. `exit_code`: 0 where the operation did its work, 1 too late, 2 refused."""

    status: int
    exit_code: int
    sentence: str


REPLIES: Final[Mapping[str, Mapping[Answer, Reply]]] = {
    name: {answer: Reply(*meaning) for answer, meaning in replies.items()} for name, (_, replies) in OPERATIONS.items()
}


def reply(operation: str, answer: Answer) -> Reply:
    """What this answer to this operation means."""
    return REPLIES[operation][answer]
