"""`kill -9` at random moments: everything arrives, in order, and only deliveries without a commit repeat (D5).

The contents of the destination decide; the ledger is read only for what was committed at the moment of the kill.
"""

import contextlib
import json
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from delivery.soak.load import Load, Name, Received, from_ndjson, make_load

pytestmark = pytest.mark.timeout(1200)

Size = Callable[[int, int], int]


class Victim:
    """`tickwheel deliver` on one store, killed and started again."""

    def __init__(self, folder: Path, to: str, load: Load, seconds: float, arrived: Callable[[], object]) -> None:
        self._arrived = arrived
        self.store = folder / "store.db"
        load.write(folder / "in.ndjson")
        self._command = [sys.executable, "-m", "tickwheel.cli", "deliver", str(folder / "in.ndjson")]
        self._command += ["--store", str(self.store), "--to", to, "--speed", str(load.span_ms / 1000 / seconds)]
        self.committed: list[set[Name]] = []

    def live_for(self, seconds: float, *, after_a_delivery: bool = False) -> bool:
        """Start it, and kill it this long after its start or first delivery. Returns whether it had ended by then."""
        before = self._arrived()
        with subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                while after_a_delivery and process.poll() is None and self._arrived() == before:
                    time.sleep(0.005)
                _, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                self.committed.append(self._delivered())
                return False
        assert process.returncode == 0, err.decode()
        return True

    def _delivered(self) -> set[Name]:
        if not self.store.exists():
            return set()
        db = sqlite3.connect(self.store)
        try:
            ledger = "SELECT key, id FROM ledger JOIN messages USING (seq) WHERE ledger.outcome = 1"
            return set(db.execute(ledger).fetchall())
        except sqlite3.OperationalError:  # killed before there were tables
            return set()
        finally:
            db.close()


def kill_often(victim: Victim, rng: random.Random, kills: int, after_kill: Callable[[], object] = lambda: None) -> None:
    """Kill it often: sometimes soon after the start, while it reads, mostly while it delivers; then let it end."""
    for _ in range(kills):
        delivers = rng.random() < 0.8
        done = victim.live_for(rng.uniform(0, 1.2) if delivers else rng.uniform(0.2, 1.5), after_a_delivery=delivers)
        after_kill()
        if done:
            break
    assert len(victim.committed) >= kills / 2, "it ended before it was killed often enough"
    assert victim.live_for(600)


def test_a_file_has_every_message_and_repeats_only_what_was_not_committed__D5(
    tmp_path: Path, size: Size, seed: int
) -> None:
    out = tmp_path / "out.ndjson"
    out.touch()
    check_repeats(tmp_path, f"file:{out}", size, seed, lambda: out.stat().st_size, lambda: from_ndjson(out))


class Taker(BaseHTTPRequestHandler):
    """Answers 200 to each message."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def takes(self, one: dict[str, Any]) -> None:
        raise NotImplementedError

    def do_POST(self) -> None:
        self.takes(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # the client was killed in the middle of a request
            super().handle()


class Server(ThreadingHTTPServer):
    """Knows when it has taken all that a killed process sent: on a busy machine its threads may be behind."""

    request_queue_size = 1024

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._changed = threading.Condition()
        self._active = 0
        self._accepted: set[Any] = set()
        super().__init__(("127.0.0.1", 0), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._active += 1
            self._accepted.add(client_address)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until no connection is open. Those before this one are accepted once this one is."""
        with socket.create_connection(self.server_address[:2]) as last:  # type: ignore[arg-type]
            name = last.getsockname()
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._accepted and not self._active, 60)


def test_a_webhook_gets_every_message_and_again_only_what_was_not_committed__D5(
    tmp_path: Path, size: Size, seed: int
) -> None:
    received: list[Received] = []

    class Receiver(Taker):
        def takes(self, one: dict[str, Any]) -> None:
            received.append(Received((one["key"], one["id"]), one["redelivered"], one["payload"]))

    def after_kill() -> list[Received]:
        server.settle()
        return list(received)

    with Server(Receiver) as server:
        threading.Thread(target=server.serve_forever).start()
        to = f"http://127.0.0.1:{server.server_port}/"
        try:
            check_repeats(tmp_path, to, size, seed, lambda: len(received), after_kill)
        finally:
            server.shutdown()


def check_repeats(
    folder: Path, to: str, size: Size, seed: int, arrived: Callable[[], object], read: Callable[[], list[Received]]
) -> None:
    messages, kills = size(4_000, 100_000), size(6, 50)
    load = make_load(messages, seed=seed, keys=messages // 20, span_ms=3_600_000)
    victim = Victim(folder, to, load, seconds=size(5, 60), arrived=arrived)
    at_kill: list[int] = []
    kill_often(victim, random.Random(seed), kills, lambda: at_kill.append(len(read())))
    received = read()
    assert load.problems(received, may_repeat=True) == []
    assert again_though_committed(received, victim.committed, at_kill) == []
    repeats = len(received) - len({one.name for one in received})
    print(f"{messages:,} messages, {len(victim.committed)} kills, {repeats} repeats")


def again_though_committed(received: list[Received], committed: list[set[Name]], at_kill: list[int]) -> list[Name]:
    """Messages that came after a kill although they were committed as delivered before it."""
    return [
        one.name
        for delivered, count in zip(committed, at_kill, strict=False)
        for one in received[count:]
        if one.name in delivered
    ]


def test_a_database_has_each_message_once__D5_D10(tmp_path: Path, size: Size, seed: int) -> None:
    out = tmp_path / "out.db"
    check_sql(tmp_path, f"sqlite:{out}?table=arrived", size, seed, lambda select: ask_sqlite(out, select), "rowid")


def test_a_database_server_has_each_message_once__D5_D10(
    tmp_path: Path, size: Size, seed: int, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as db:  # a user's own table, which records the order of arrival
        db.execute("""
            CREATE TABLE arrived (
                place bigserial, id text, key text, due timestamptz, payload json, payload_bytes bytea,
                delivered_at timestamptz, lateness_ms double precision, attempt integer, redelivered boolean
            )
        """)

    def ask(select: str) -> list[Any]:
        with psycopg.connect(postgres_url) as db:
            return db.execute(select.replace("payload", "payload::text")).fetchall()

    check_sql(tmp_path, f"{postgres_url}&table=arrived", size, seed, ask, "place")


Ask = Callable[[str], list[Any]]


def check_sql(folder: Path, to: str, size: Size, seed: int, ask: Ask, order: str) -> None:
    messages, kills = size(4_000, 100_000), size(6, 50)
    load = make_load(messages, seed=seed, keys=messages // 20, span_ms=3_600_000)
    victim = Victim(folder, to, load, seconds=size(5, 40), arrived=lambda: ask("SELECT count(*) FROM arrived"))
    kill_often(victim, random.Random(seed), kills)
    rows = ask(f"SELECT key, id, redelivered, payload FROM arrived ORDER BY {order}")
    received = [Received((key, id_), redelivered, json.loads(payload)) for key, id_, redelivered, payload in rows]
    assert load.problems(received, may_repeat=False) == []
    print(f"{messages:,} messages, {len(victim.committed)} kills")


def ask_sqlite(path: Path, select: str) -> list[Any]:
    if not path.exists():
        return []
    db = sqlite3.connect(path)
    try:
        return db.execute(select).fetchall()
    except sqlite3.OperationalError:  # no table yet
        return []
    finally:
        db.close()
