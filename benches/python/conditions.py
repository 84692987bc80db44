"""The conditions of a run: settings of the machine, what other processes took of it, and how steady a fixed loop was.

`benches/peers/src/conditions.rs` notes the same for Rust. Both are read by `benches/report/results.py`.
"""

import time
from pathlib import Path
from typing import Final

HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROCESSORS: Final = Path("/sys/devices/system/cpu")
ABSENT: Final = "none seen"
"""The word for a setting that the machine does not show: a virtual one seldom shows its governor."""

STEPS: Final = 200_000
"""Of the fixed loop: a few milliseconds."""


def huge_pages() -> str:
    """Whether transparent huge pages are on: `always`, `madvise` or `never`."""
    try:
        return HUGE_PAGES.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        return ABSENT


def governor() -> str:
    """The governors of the processors' frequency."""
    found = {path.read_text().strip() for path in PROCESSORS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(found)) or ABSENT


class Conditions:
    """Watches a run from its creation to `noted()`."""

    def __init__(self) -> None:
        self._before = ticks()
        self._calibration_ms: list[float] = []

    def calibrate(self) -> None:
        """Time the fixed loop once. It feels other processes and a changing frequency, and little of slow memory."""
        started_ns = time.perf_counter_ns()
        for _ in range(STEPS):
            pass
        self._calibration_ms.append((time.perf_counter_ns() - started_ns) / 1e6)

    def noted(self) -> dict[str, object]:
        """For the result file. The percentages are of the time of all processors."""
        total, busy, stolen, own = (after - before for after, before in zip(ticks(), self._before, strict=True))
        return {
            "huge_pages": huge_pages(),
            "governor": governor(),
            "others_percent": round(100 * max(0, busy - own) / max(1, total), 2),
            "stolen_percent": round(100 * stolen / max(1, total), 2),
            "calibration_ms": self._calibration_ms,
        }


def ticks() -> tuple[int, int, int, int]:
    """Of all processors: total, busy, stolen by the host; and of this process with the children that have ended.

    In the kernel's clock ticks since the boot; proc(5) has the fields.
    """
    processors = Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, idle, waiting, irq, soft_irq, stolen = map(int, processors.split()[1:9])
    busy = user + nice + system + irq + soft_irq
    own = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[11:15]
    return busy + idle + waiting + stolen, busy, stolen, sum(map(int, own))
