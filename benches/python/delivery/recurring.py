"""Very many recurring messages in one store: how fast they come in, what they hold, and how late their occurrences are.

    python -m benches.python.delivery.recurring [--rules 10000000] [--seconds 60] [--folder FOLDER]

Each rule comes once an hour, and their times are spread over it: ten million are 2,778 occurrences a second. Once all
are in, the store is opened again, and the occurrences that are due from then on are watched.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click

from tickwheel.delivery import DeliveryQueue, StoreView
from tickwheel.delivery.model.summary import percentiles

_HOUR_MS = 3_600_000
_BLOCK = 20_000


@click.command()
@click.option("--rules", default=10_000_000, show_default=True)
@click.option("--seconds", default=60, show_default=True, help="How long the occurrences are watched.")
@click.option("--folder", type=click.Path(path_type=Path), default="build", show_default=True)
def main(rules: int, seconds: int, folder: Path) -> None:
    """Measure, and print."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        _measure(Path(part), rules, seconds)


def _measure(folder: Path, rules: int, seconds: int) -> None:
    out, store = folder / "out", folder / "store.db"
    empty_mib = _resident_mib()
    first_ms = int(time.time() * 1_000)
    with DeliveryQueue(store, to=f"file:{out}") as queue:
        start = time.perf_counter()
        for block in _blocks(rules, first_ms):
            queue.submit_ndjson(block).result()
        took_s = time.perf_counter() - start
        click.echo(f"{rules:,} rules in {took_s:.0f} s, {rules / took_s:,.0f}/s; {_size_mib(store):,.0f} MiB of file")
        click.echo(f"resident: {_resident_mib() - empty_mib:,.0f} MiB more than before")
        looked = time.perf_counter()
        queue.view.list("recurring", limit=100, cursor=str(rules))
        click.echo(f"a page of 100 in the middle: {(time.perf_counter() - looked) * 1_000:.1f} ms")
    opened = time.perf_counter()
    with DeliveryQueue(store, to=f"file:{out}") as queue:
        click.echo(f"opened again in {time.perf_counter() - opened:.1f} s")
        time.sleep(5)
        from_s, until_s = time.time(), time.time() + seconds
        queue.wait_until_empty(seconds + 1)  # it never is
        click.echo(f"resident: {_resident_mib() - empty_mib:,.0f} MiB more than before")
    every = [json.loads(line) for line in out.read_text().splitlines()]
    lines = [line for line in every if from_s <= datetime.fromisoformat(line["due"]).timestamp() < until_s]
    ranks = ", ".join(f"{rank} {ms} ms" for rank, ms in percentiles([line["lateness_ms"] for line in lines]).items())
    expected = rules * seconds * 1_000 // _HOUR_MS
    click.echo(f"{len(lines):,} occurrences in {seconds} s, of {expected:,} that were due; late: {ranks}")
    click.echo(f"names that came twice: {len(every) - len({line['id'] for line in every})} of {len(every):,}")
    status = StoreView(store).status()
    click.echo(f"in the store: {status.recurring:,} that recur, {status.waiting:,} occurrences that wait")


def _blocks(rules: int, first_ms: int) -> Iterator[bytes]:
    for start in range(0, rules, _BLOCK):
        numbers = range(start, min(rules, start + _BLOCK))
        # Neighbours are not due beside each other.
        due = [first_ms + number * 7_919 % rules * _HOUR_MS // rules for number in numbers]
        yield b"".join(
            b'{"id":"rule %d","key":"key %d","every":3600000,"due":%d,"payload":{"account":%d,"text":"check it"}}\n'
            % (number, number % 100_000, at_ms, number)
            for number, at_ms in zip(numbers, due, strict=True)
        )


def _size_mib(store: Path) -> float:
    return store.stat().st_size / (1 << 20)


def _resident_mib() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4_096 / (1 << 20)


if __name__ == "__main__":
    main()
