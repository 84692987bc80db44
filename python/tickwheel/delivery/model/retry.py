"""How long a key waits after a send that was not accepted (rule D6): a list of waits, or exponential back-off with
jitter. With jitter, keys that failed together do not return together.

Example: 1 s, then 2, 4 and 8, each shortened by up to a half at random. The engine reckons it:
`crates/delivery/src/due/retry.rs`. The defaults are in `crates/delivery/src/run/settings.rs` too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tickwheel.delivery.base.errors import WrongUsage, quoted

_BACKOFF_S = (1.0, 300.0)
_MOST_WAITS = 100
_MAX_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after what time."""

    max_attempts: int = _MAX_ATTEMPTS
    first_ms: float = 1_000
    longest_ms: float = 300_000
    waits_ms: tuple[float, ...] = ()
    """Exactly these instead, the last one again and again."""
    waits_end: bool = False
    """Each attempt counts, whatever the answer, and the one after the last of `waits_ms` is the last."""

    @classmethod
    def of_seconds(
        cls,
        max_attempts: int,
        backoff_s: tuple[float, float],
        waits_s: Sequence[float] | None = None,
        waits_end: bool = False,
    ) -> "Retry":
        """From the first wait and the longest, or a list. Errors: `WrongUsage` if these are no numbers, or too many."""
        if not isinstance(waits_end, bool):
            raise WrongUsage(f"waits-end is {quoted(waits_end)}: it may be True or False")
        if waits_end and waits_s is None:
            raise WrongUsage("waits-end needs waits: give the list that ends")
        if waits_end and max_attempts != _MAX_ATTEMPTS:
            raise WrongUsage("max-attempts and waits-end were both given: leave one of them out")
        if waits_s is not None:
            if backoff_s not in (_BACKOFF_S, [*_BACKOFF_S]):
                raise WrongUsage("backoff and waits were both given: leave one of them out")
            return cls(max_attempts, waits_ms=_waits_ms(waits_s), waits_end=waits_end)
        try:
            first_s, longest_s = backoff_s
            return cls(max_attempts, first_s * 1000.0, longest_s * 1000.0)
        except (TypeError, ValueError, OverflowError):
            raise WrongUsage(
                f"backoff is {quoted(backoff_s)}: it may be two numbers of seconds, the first wait and the longest"
            ) from None


def _waits_ms(waits_s: Sequence[float]) -> tuple[float, ...]:
    allowed = f"it may be 1 to {_MOST_WAITS} numbers of seconds"
    try:
        waits_ms = tuple(wait_s * 1000.0 for wait_s in waits_s)
    except (TypeError, OverflowError):
        raise WrongUsage(f"waits is {quoted(waits_s)}: {allowed}") from None
    if not 1 <= len(waits_ms) <= _MOST_WAITS:
        raise WrongUsage(f"waits has {len(waits_ms)} of them: {allowed}")
    return waits_ms
