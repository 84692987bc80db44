"""Measure one work on one side, and print the figures as JSON; `benches/python/suite.py` starts it.

python -m benches.queues.measure "500/s, p50" River 1000000 1.0
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .programs.common import SPARE_S, TAIL_S, Request, as_argument
from .servers import postgresql, redis
from .sides import BY_NAME, FOLDER, ROOT, Side
from .works import WORKS, Accept, Late, Overdue

STARTS_S = 1.5
"""Until a program hands in its first job."""


def main(figure: str, side_name: str, count: int) -> int:
    """The exit code: that of the program if it failed, as `TOO_LATE`."""
    work = next(work for work in WORKS if figure == work.figures[0].name)
    side = BY_NAME[side_name]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=FOLDER)))
        folder.chmod(0o755)  # PostgreSQL may be another user
        postgres, redis_port = stack.enter_context(servers(side, folder))
        (folder / "own").mkdir()
        asked: dict[str, Any] = {
            "postgres": postgres,
            "redis": redis_port,
            "folder": str(folder / "own"),
            "out": str(folder / "out"),
        }
        request = Request(**asked, **demanded(work, side, count))
        command = [*side.command, as_argument(request), *side.arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return done.returncode
        said = json.loads(done.stdout.splitlines()[-1])
        if isinstance(work, Accept):
            found = {figure: count / said["took_s"]}
            note = ""
        else:
            found, note = ran(work, request, said["first_ms"], said["began_us"])
    print(json.dumps({"figures": found, "note": note}))
    return 0


def demanded(work: Late | Accept | Overdue, side: Side, count: int) -> dict[str, Any]:
    """What of the request depends on the work."""
    if isinstance(work, Accept):
        return {"do": "accept", "count": count, "rate": 0, "lead_s": 0, "batch": work.batch, "clients": work.clients}
    lead_s = STARTS_S + SPARE_S + count / side.puts_per_s
    how = {"count": count, "lead_s": lead_s, "batch": side.batch, "clients": side.clients}
    if isinstance(work, Overdue):
        return {"do": "overdue", "rate": count * 2, **how}
    return {"do": "late", "rate": work.rate, **how}


@contextmanager
def servers(side: Side, folder: Path) -> Iterator[tuple[str, int]]:
    """The URL of PostgreSQL and the port of Redis, of which a side needs one at most."""
    if side.server == "postgresql":
        with postgresql(folder / "postgresql") as url:
            yield url, 0
    elif side.server == "redis":
        with redis(folder / "redis", side.sync) as port:
            yield "", port
    else:
        yield "", 0


def ran(work: Late | Overdue, request: Request, first_ms: int, began_us: int) -> tuple[dict[str, float], str]:
    """The figures from what ran, and a note on jobs that did not. A job that ran early or twice is an error.

    A job that did not run counts as late as the program waited for it.
    """
    lines = [line.split() for line in Path(request.out).read_text().splitlines()]
    at_us = {int(number): int(us) for number, us in lines}
    if len(at_us) != len(lines):
        raise ValueError(f"{len(lines) - len(at_us)} jobs ran twice")
    if strange := at_us.keys() - set(range(request.count)):
        raise ValueError(f"{len(strange)} jobs ran that nobody handed in, such as {min(strange)}")
    note = "" if len(at_us) == request.count else f"{len(at_us):,} of {request.count:,} jobs ran"
    if isinstance(work, Overdue):
        return {work.figures[0].name: len(at_us) / (max(at_us.values(), default=began_us + 1) - began_us) * 1e6}, note
    due_us = [(first_ms + n * 1000 // request.rate) * 1000 for n in range(request.count)]
    end_us = due_us[-1] + TAIL_S * 1e6
    late_ms = sorted((at_us.get(n, end_us) - due) / 1000 for n, due in enumerate(due_us))
    early = sum(ms < 0 for ms in late_ms)
    if early:
        note = f"{early:,} jobs ran early, by up to {-late_ms[0]:.1f} ms{'; ' * bool(note)}{note}"
    p50, p99 = (figure.name for figure in work.figures)
    return {p50: late_ms[len(late_ms) // 2], p99: late_ms[len(late_ms) * 99 // 100]}, note


if __name__ == "__main__":
    figure, side_name, count, _ = sys.argv[1:]
    sys.exit(main(figure, side_name, int(count)))
