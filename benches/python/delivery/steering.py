"""What it costs to steer delivery: a cancel of many beside it, and pages of a store with very many messages.

    python -m benches.python.delivery.steering [--many 500000] [--waiting 10000000] [--folder FOLDER]

Half a million messages that are due in years are cancelled while 10,000 a second are delivered to a file: how long it
takes, and how late those are in the seconds before and meanwhile. Then pages of a store: the slowest of each kind.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import click

from tickwheel.delivery import DeliveryQueue, StoreView
from tickwheel.delivery.model.summary import percentiles

from .cases import blocks, feed

_RATE = 10_000
_BEFORE_S = 6.0
_FAR_MS = 4_000_000_000_000
_ROUNDS = 20


@click.command()
@click.option("--many", default=500_000, show_default=True, help="Messages to cancel.")
@click.option("--waiting", default=10_000_000, show_default=True, help="Messages in the store of the pages.")
@click.option("--folder", type=click.Path(path_type=Path), default="build", show_default=True)
def main(many: int, waiting: int, folder: Path) -> None:
    """Measure both, and print them."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        cancel_many(Path(part), many)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        pages(Path(part), waiting)


def cancel_many(folder: Path, many: int) -> None:
    """A cancel of all that are far, beside delivery."""
    out = folder / "out"
    with DeliveryQueue(folder / "store.db", to=f"file:{out}") as queue:
        feed(queue.submit_ndjson, blocks(100_000, many / 100_000, _FAR_MS, _FAR_MS + 86_400_000))
        steady = Thread(target=lambda: feed(queue.submit_ndjson, blocks(_RATE, _BEFORE_S + 16)))
        steady.start()
        time.sleep(_BEFORE_S)
        began_s = time.time()
        action = queue.cancel_many(due_from=_FAR_MS)
        while (done := queue.action(action)) is None or done.ended is None:
            time.sleep(0.01)
        ended_s = time.time()
        steady.join()
        queue.wait_until_empty(60)
    late = [(line["due"], line["lateness_ms"]) for line in map(json.loads, out.read_text().splitlines())]
    moments = [(_seconds(due), ms) for due, ms in late]
    before = percentiles([ms for at, ms in moments if began_s - 3 <= at < began_s])
    meanwhile = percentiles([ms for at, ms in moments if began_s <= at < ended_s])
    took_s = ended_s - began_s
    click.echo(
        f"cancelled {done.changed:,} in {took_s:.2f} s, {done.changed / took_s:,.0f}/s; too late {done.too_late}"
    )
    for name, ranks in {"before": before, "meanwhile": meanwhile}.items():
        click.echo(f"{name}: " + ", ".join(f"{rank} {ms} ms late" for rank, ms in ranks.items()))
    click.echo(f"p99 meanwhile / before: {(meanwhile['p99'] or 0) / (before['p99'] or 1):.2f}")


def _seconds(due: str) -> float:
    hours, minutes, seconds = due[11:-1].split(":")
    midnight_s = time.time() // 86_400 * 86_400
    return midnight_s + int(hours) * 3_600 + int(minutes) * 60 + float(seconds)


def pages(folder: Path, waiting: int) -> None:
    """Pages of a store in which so many wait."""
    store = folder / "store.db"
    with DeliveryQueue(store, to=f"file:{folder / 'out'}") as queue:
        feed(queue.submit_ndjson, blocks(100_000, waiting / 100_000, _FAR_MS, _FAR_MS + 30 * 86_400_000))
        for name, look in _looks(queue.view):
            took_ms = sorted(_times_ms(look))
            click.echo(f"{name}: {took_ms[_ROUNDS // 2]:.1f} ms, at most {took_ms[-1]:.1f} ms")


def _looks(view: StoreView) -> Iterator[tuple[str, Callable[[], object]]]:
    middle_ms = _FAR_MS + 15 * 86_400_000
    cursor = view.list(due_from=middle_ms, limit=100).next
    yield "the first page of 100", lambda: view.list(limit=100)
    yield "a page in the middle", lambda: view.list(due_from=middle_ms, limit=100)
    yield "the page after it", lambda: view.list(due_from=middle_ms, limit=100, cursor=cursor)
    yield "a page of 1,000", lambda: view.list(limit=1000)
    yield "a page of one key of 5,000", lambda: view.list(key="key 77", limit=20)


def _times_ms(look: Callable[[], object]) -> Iterator[float]:
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        look()
        yield (time.perf_counter() - start) * 1_000


if __name__ == "__main__":
    main()
