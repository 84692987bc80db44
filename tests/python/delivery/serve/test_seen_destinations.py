"""What `tickwheel serve` tells of each named destination (D14, D15, D23)."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from delivery.webhook_receiver import Receiver
from tickwheel._native import Destination
from tickwheel.commands import tickwheel
from tickwheel.delivery.model.entries import SetDestination
from tickwheel.delivery.serve import live, metrics
from tickwheel.delivery.sight import Destinations, StoreView

from .conftest import Served
from .test_metrics import scrape

pytestmark = pytest.mark.timeout(60)
FAR_MS = 4_000_000_000_000


def set_destination(served: Served, name: str, url: str, **more: object) -> None:
    settings = msgspec.json.encode({"url": url, **more}).decode()
    served.running.submit(SetDestination(name, settings), format="item").result(30)


def put(served: Served, name: str, count: int, due_ms: int = 1_700_000_000_000) -> None:
    for number in range(count):
        item = {"id": f"{name} {due_ms} {number}", "due": due_ms, "destination": name}
        assert served.ask("POST", "/messages", item).status == 201


@pytest.fixture
def served(tmp_path: Path, receiver: Receiver) -> Iterator[Served]:
    """One destination takes all, one is down, one is paused, and one has no message."""
    with closing(Served(tmp_path, to=Destination.named())) as served, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        set_destination(served, "well", receiver.url, rate="1000/s")
        set_destination(served, "gone", f"http://127.0.0.1:{nobody.getsockname()[1]}/", waits_s=[0.2])
        set_destination(served, "held", receiver.url, paused=True)
        set_destination(served, "idle", receiver.url)
        put(served, "well", 3)
        put(served, "well", 2, FAR_MS)
        put(served, "gone", 6)
        put(served, "held", 4)
        while not served.running.engine.destinations_down or served.running.summary.delivered < 3:
            time.sleep(0.01)
        yield served


def test_the_status_shows_the_ones_that_need_the_reader_first__D14_D23(served: Served) -> None:
    told = served.ask("GET", "/status").body
    assert told["down_since"] is None, "that is the store's own destination"
    found = msgspec.convert(told["destinations"], Destinations)
    assert (found.count, found.paused, found.down) == (4, 1, 1)
    assert [it.name for it in found.first] == ["gone", "held", "idle", "well"]
    gone, held, idle, well = found.first
    assert (gone.state, gone.waiting, gone.overdue, gone.delivered) == ("down", 6, 6, 0)
    assert gone.failed_attempts is not None
    assert gone.failed_attempts >= 6
    assert gone.last_error is not None
    assert "refused" in gone.last_error
    assert gone.down_since is not None
    assert gone.last_error_at is not None
    assert gone.down_reason is not None
    assert (held.state, held.overdue, held.delivered) == ("paused", 4, 0)
    assert (idle.state, idle.waiting, idle.first_due) == ("sending", 0, None)
    assert (well.state, well.waiting, well.overdue, well.delivered, well.rate) == ("sending", 2, 0, 3, "1000/s")
    assert (well.late, gone.late) == (3, 0), "they were due years ago"
    assert served.running.destination_figures(["well", "nobody"]).first == [well]
    assert [it.name for it in served.running.destination_figures(limit=1).first] == ["gone"]


def test_a_store_alone_shows_what_waits_for_each__D14_D23(served: Served, tmp_path: Path) -> None:
    served.close()
    found = StoreView(tmp_path / "store.db").status().destinations
    assert (found.count, found.paused, found.down) == (4, 1, None)
    assert [(it.name, it.state, it.overdue) for it in found.first] == [
        ("gone", "sending", 6),
        ("held", "paused", 4),
        ("idle", "sending", 0),
        ("well", "sending", 0),
    ]
    assert {it.delivered for it in found.first} == {None}


def test_the_command_prints_them_as_a_table__D14_D23(served: Served, tmp_path: Path) -> None:
    printed = CliRunner().invoke(tickwheel, ["status", served.url]).output
    assert "destinations:     4, 1 down, 1 paused\n" in printed
    lines = printed.split("\ndestinations:\n")[1].splitlines()
    assert lines[0].split() == ["name", "state", "waiting", "overdue", "late", "rate", "last", "error"]
    assert [line.split()[0] for line in lines[1:]] == ["gone", "held", "idle", "well"]
    assert "down for" in lines[1]
    assert "3 of 3" in lines[4]
    assert "refused" in lines[1]
    served.close()
    printed = CliRunner().invoke(tickwheel, ["status", str(tmp_path / "store.db")]).output
    assert "destinations:     4, 1 paused\n" in printed


def test_a_status_without_them_says_nothing_of_them__D14_D23(tmp_path: Path) -> None:
    with closing(Served(tmp_path)) as served:
        assert served.ask("GET", "/status").body["destinations"] == {"count": 0, "paused": 0, "down": 0, "first": []}
        assert "destinations" not in CliRunner().invoke(tickwheel, ["status", served.url]).output


def of(found: dict[str, float], name: str) -> dict[str, float]:
    start = f"tickwheel_destination_{name} destination="
    return {key.removeprefix(start): value for key, value in found.items() if key.startswith(start)}


def test_each_has_time_series_of_its_own__D15_D23(served: Served) -> None:
    found = scrape(served)
    totals = [found[f"tickwheel_destinations{more}"] for more in ("", "_down", "_paused")]
    assert totals == [4, 1, 1]
    assert of(found, "delivered_messages_total") == {"well": 3, "gone": 0, "other": 0}
    assert of(found, "late_messages_total") == {"well": 3, "gone": 0, "other": 0}
    lateness_s = of(found, "lateness_seconds_total")
    assert lateness_s["well"] == pytest.approx(3 * (time.time() - 1_700_000_000), abs=200)
    assert lateness_s["gone"] == lateness_s["other"] == 0
    failed = of(found, "failed_attempts_total")
    assert failed["gone"] >= 6
    assert failed["well"] == 0
    assert found["tickwheel_attempts_total"] >= 9, "all sends count together, too"
    assert of(found, "down") == {"well": 0, "gone": 1, "other": 0}
    assert of(found, "paused") == {"well": 0, "gone": 0, "other": 1}, "it was never sent to"
    overdue = of(found, "oldest_overdue_seconds")
    assert overdue["well"] == 0
    assert overdue["gone"] > 1_000


def test_only_the_first_thousand_do__D15_D23(
    served: Served, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metrics.NAMED == 1_000
    monkeypatch.setattr(metrics, "NAMED", 2)
    for name in ("other", "third"):
        set_destination(served, name, receiver.url)
        put(served, name, 1)
    while served.running.summary.delivered < 5:
        time.sleep(0.01)
    found = scrape(served)
    assert of(found, "delivered_messages_total") == {"well": 3, "gone": 0, "other": 2}
    assert set(of(found, "oldest_overdue_seconds")) == {"well", "gone"}


def test_one_that_has_the_name_of_the_others_is_among_them__D15_D23(tmp_path: Path, receiver: Receiver) -> None:
    with closing(Served(tmp_path, to=Destination.named())) as served:
        for name in ("other", "own"):
            set_destination(served, name, receiver.url)
            put(served, name, 1)
        assert served.running.wait(30)
        assert of(scrape(served), "delivered_messages_total") == {"own": 1, "other": 1}


def test_it_is_ready_and_says_how_many_are_down__D6_D23(served: Served) -> None:
    assert served.ask("GET", "/readyz")[:2] == (200, {"status": "ok", "destinations_down": 1})
    assert served.ask("GET", "/livez")[:2] == (200, {"status": "ok"})


def test_one_that_is_paused_while_it_is_down_is_only_paused__D14_D15_D23(served: Served) -> None:
    """Everywhere: the status, the command, the metrics, the page and the health."""
    settings = served.ask("GET", "/destinations/gone").body
    url = settings["settings"]["url"]
    set_destination(served, "gone", url, paused=True)
    told = msgspec.convert(served.ask("GET", "/status").body["destinations"], Destinations)
    assert (told.count, told.paused, told.down) == (4, 2, 0)
    gone = next(it for it in told.first if it.name == "gone")
    assert (gone.state, gone.down_since, gone.down_reason) == ("paused", None, None)
    printed = CliRunner().invoke(tickwheel, ["status", served.url]).output
    assert "destinations:     4, 2 paused\n" in printed
    assert "down for" not in printed
    found = scrape(served)
    assert [found[f"tickwheel_destinations{more}"] for more in ("", "_down", "_paused")] == [4, 0, 2]
    assert (of(found, "down"), of(found, "paused")["gone"]) == ({"well": 0, "gone": 0, "other": 0}, 1)
    assert served.ask("GET", "/readyz")[:2] == (200, {"status": "ok"})
    figures: dict[str, Any] = live.figures(served.running, time.time_ns() // 1_000_000)
    assert (figures["destinations"].down, figures["destinations"].paused) == (0, 2)
    set_destination(served, "gone", url, paused=False)
    assert served.ask("GET", "/readyz").body == {"status": "ok", "destinations_down": 1}, "the outage goes on"


def test_nothing_speaks_of_a_destination_of_the_stores_own_that_is_not_there__D14_D15_D23(
    served: Served, tmp_path: Path
) -> None:
    def own(of: Served) -> tuple[set[str], Any]:
        return {
            name for name in scrape(of) if name.startswith(("tickwheel_destination_up", "tickwheel_destination_c"))
        }, (live.figures(of.running, time.time_ns() // 1_000_000)["destination"])

    assert own(served) == (set(), None)
    with closing(Served(tmp_path, name="other.db")) as beside:
        names, told = own(beside)
    assert names == {"tickwheel_destination_up", "tickwheel_destination_changed_timestamp_seconds"}
    assert told["up"]


def test_the_page_gets_them__D14_D23(served: Served, tmp_path: Path) -> None:
    figures: dict[str, Any] = live.figures(served.running, time.time_ns() // 1_000_000)
    assert [it.name for it in figures["destinations"].first] == ["gone", "held", "idle", "well"]
    with closing(Served(tmp_path, name="other.db")) as other:
        assert live.figures(other.running, 0)["destinations"] is None, "none is set"
