"""How long the rows of a batch may take in a database, so that a slow one does not hold up the others (rule D6).

- A batch may take some times as long as batches usually do. If it takes longer, it is split. Half of its rows may take
  half of its time, and so on.
- A row that takes too long in a part has no answer. It is sent again, with more time. The rows that are tried alone
  share half a second. So a few rows that need longer than others are written at once.
- If a batch takes too long, the database may be slow. So some of its rows are tried alone first. If each of them takes
  too long as well, or the batch would take long at their pace, the rows have more time.
"""

import math
from collections.abc import Sequence
from typing import Final, TypeVar

_T = TypeVar("_T")

_TOGETHER_S: Final = 0.25  # for several rows, or more if they usually take long
_TIMES_USUAL: Final = 16
_SMALLEST_PART: Final = 0.1  # of the time for the batch: each statement of a few rows may take so long
_SAMPLES: Final = 4
ALONE_S: Final = 0.5  # of one send, for the rows that are tried alone


class Patience:
    """How long several rows may take together: some times as long as they usually do, and `longest_s` at most."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._usual_s = 0.0

    @property
    def together_s(self) -> float:
        """In steps, because another time costs a round trip."""
        doubled = math.ceil(math.log2(max(1.0, _TIMES_USUAL * self._usual_s / _TOGETHER_S)))
        return min(_TOGETHER_S * (1 << doubled), self._longest_s)

    def part_s(self, share: float) -> float:
        """For this part of a batch."""
        return self.together_s * max(share, _SMALLEST_PART)

    def note(self, took_s: float) -> None:
        """Several rows were written in this time."""
        self._usual_s = max(took_s, 0.9 * self._usual_s)

    def note_pace(self, row_s: float, rows: int) -> None:
        """The quickest of some rows took so long alone: all of them may take twice as long as they would so."""
        self._usual_s = max(self._usual_s, 2 * row_s * rows / _TIMES_USUAL)


def samples(rows: Sequence[_T]) -> Sequence[_T]:
    """Some rows of a batch that took too long, far from each other: slow rows may stand together."""
    return rows[:: math.ceil(len(rows) / _SAMPLES)]
