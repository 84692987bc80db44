"""A start that fails leaves nothing behind that was not there before (rule D13)."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tickwheel.delivery import DeliveryFailed, DeliveryQueue, WrongUsage
from tickwheel.delivery.sinks import Sink, SinkSettings

pytestmark = pytest.mark.timeout(60)


def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tickwheel", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=50)


class Closed(Sink):
    def __init__(self, settings: SinkSettings) -> None:
        raise DeliveryFailed("the destination is closed for ever")

    send = None  # type: ignore[assignment]


def test_a_destination_that_can_not_be_opened_leaves_no_store__D13(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailed, match="closed for ever"):
        DeliveryQueue(tmp_path / "store.db", to=Closed)
    with pytest.raises(WrongUsage):
        DeliveryQueue(tmp_path / "store.db", to=f"file:{tmp_path / 'no folder' / 'out'}")
    assert [*tmp_path.iterdir()] == []


def test_a_store_that_was_there_stays__D13(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None):
        pass
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(DeliveryFailed, match="closed for ever"):
        DeliveryQueue(tmp_path / "store.db", to=Closed)
    assert (tmp_path / "store.db").read_bytes()[:16] == before[:16]
    (tmp_path / "empty.db").touch()
    with pytest.raises(DeliveryFailed, match="closed for ever"):
        DeliveryQueue(tmp_path / "empty.db", to=Closed)
    assert (tmp_path / "empty.db").exists()


def test_a_queue_that_took_nothing_keeps_its_store__D13(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None):
        pass
    assert (tmp_path / "store.db").exists()


@pytest.mark.parametrize("wrong", [["--horizon", "0"], ["--to", "file:{}/no folder/out"], ["--to", "mysql://x"]])
def test_a_command_that_is_refused_leaves_nothing__D13(wrong: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    given = [part.format(tmp_path) for part in wrong]
    done = run("deliver", "-", "--store", folder / "s.db", "--dead-letters", folder / "dead", *given)
    assert done.returncode == 2, done.stderr
    assert [*folder.iterdir()] == []


def test_a_port_that_is_taken_leaves_no_store__D13(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", "--store", tmp_path / "s.db", "--listen", address, "--flight", "127.0.0.1:0")
    assert done.returncode in (2, 3), done.stderr
    assert [*tmp_path.iterdir()] == []
