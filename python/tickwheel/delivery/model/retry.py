"""When to try again (rule D6): exponential back-off with jitter, so that what failed together does not return together.

Example: 1 s, then 2, 4 and 8, each shortened by up to a half at random. The engine reckons it:
`crates/delivery/src/due/retry.rs`.
"""

from dataclasses import dataclass

from tickwheel.delivery.base.errors import WrongUsage, shown


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after what time."""

    max_attempts: int = 5
    first_ms: float = 1_000
    longest_ms: float = 300_000

    @classmethod
    def of_seconds(cls, max_attempts: int, backoff_s: tuple[float, float]) -> "Retry":
        """From the first wait and the longest. Errors: `WrongUsage` if these are not two numbers."""
        try:
            first_s, longest_s = backoff_s
            return cls(max_attempts, first_s * 1000.0, longest_s * 1000.0)
        except (TypeError, ValueError, OverflowError):
            raise WrongUsage(
                f"backoff is {shown(backoff_s)}: it may be two numbers of seconds, the first wait and the longest"
            ) from None
