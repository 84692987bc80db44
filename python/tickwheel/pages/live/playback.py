"""Writes the page of a recording: what a timer did, played on a wheel at any speed."""

import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tickwheel._native import Replay
from tickwheel.pages.live.assembly import live_page
from tickwheel.pages.live.frames import COUNTS

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS: Final = {"added": "added", "moved": "moved", "cancelled": "cancelled", "expired": "expired", "woke": "wake_ups"}
_BOUNDS_US: Final = [
    bound * 10**power for power in range(1, 8) for bound in (1, 2, 5)
]  # of lateness, up to 50 s; what is later has no bound
_MOST_BUCKETS: Final = 2_000_000  # some 5 MB


def playback(
    recording: str | os.PathLike[str],
    page: str | os.PathLike[str],
    *,
    tick_ms: int = 1,
    wheel_size: int | Sequence[int] = 20,
    frames: int = 600,
) -> None:
    """Write a page that plays a recording of `tickwheel.recording` on a wheel with these settings.

    The page is one file, and needs no network. `frames`: how many moments it has, at equal distances. What the wheel
    holds is replayed in virtual time; the counts and the lateness are the recorded ones. O(events), in batches; needs
    pyarrow. Errors: `OSError`, `BadRecording`, `ValueError` for settings that are not allowed.
    """
    if isinstance(frames, bool) or not isinstance(frames, int) or not 2 <= frames <= 10_000:
        raise ValueError(f"frames must be an int from 2 to 10,000, got {frames!r}: leave it out for 600")
    from tickwheel.recording import about

    known = about(recording)
    if not Path(page).parent.is_dir():  # before all the work
        raise FileNotFoundError(f"{Path(page).parent} is no folder: make it, or name another file")
    shown = live_page(
        "playback",
        f"Timer {known.timer}",
        {
            "timer": known.timer,
            "tick_ms": tick_ms,
            "wheel_size": wheel_size,
            "frames": list(_frames(recording, Replay(tick_ms, wheel_size), frames)),
        },
    )
    Path(page).write_bytes(shown.body)


def _frames(recording: str | os.PathLike[str], wheel: Replay, frames: int) -> Iterator[dict[str, Any]]:
    """The moments, from the beginning to the end."""
    from tickwheel.recording import about, feed, read_recording

    known = about(recording)
    span_us = max(known.ended_us - known.at_us, frames)
    ends_us = [known.at_us + span_us * frame // (frames - 1) for frame in range(frames)]
    counts: Counter[str] = Counter(dict.fromkeys(_KINDS.values(), 0))
    late: Counter[int | None] = Counter()
    done = buckets = 0

    def frame() -> dict[str, Any]:
        nonlocal buckets
        end_us = ends_us[done]
        occupancy = wheel.occupancy(end_us)
        buckets += sum(len(level["tasks"]) for level in occupancy["levels"])
        if buckets > _MOST_BUCKETS:
            raise ValueError(
                f"the page would have more than {_MOST_BUCKETS:,} buckets: ask for fewer frames, or a smaller wheel"
            )
        made = {
            "at_ms": known.wall_ms + (end_us - known.at_us) / 1000,
            "wheel": occupancy,
            "counts": {name: counts[name] for name in COUNTS if name in counts},
            "lateness_us": sorted(late.items(), key=lambda each: (each[0] is None, each[0])),
        }
        late.clear()
        return made

    for batch in read_recording(recording):
        at_us = batch["at_us"].to_pylist()
        begin = 0
        while begin < len(at_us):
            end = bisect_right(at_us, ends_us[done], begin) if done < frames - 1 else len(at_us)
            part = batch.slice(begin, end - begin)
            feed(wheel, part, recording)
            _note(part, counts, late)
            if end < len(at_us):
                yield frame()
                done += 1
            begin = end
    while done < frames:
        yield frame()
        done += 1


def _note(events: "pa.RecordBatch", counts: Counter[str], late: Counter[int | None]) -> None:
    kinds = events["kind"].to_pylist()
    counts.update(_KINDS[kind] for kind in kinds if kind in _KINDS)
    for kind, at_us, due_us in zip(kinds, events["at_us"].to_pylist(), events["due_us"].to_pylist(), strict=True):
        if kind == "expired":
            place = bisect_left(_BOUNDS_US, at_us - due_us)
            late[_BOUNDS_US[place] if place < len(_BOUNDS_US) else None] += 1
