"""When to try again (rule D6): exponential back-off with jitter, so that what failed together does not return together.

Example: 1 s, then 2, 4 and 8, each shortened by up to a half at random.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after what time."""

    max_attempts: int = 5
    first_ms: float = 1_000
    longest_ms: float = 300_000
