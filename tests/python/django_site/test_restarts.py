"""A site under load whose database restarts: each task runs, and once but for what a restart interrupts (D5, D6).

With TICKWHEEL_SOAK=1 it takes an hour, with a restart each minute.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from delivery.postgres_server import PostgresServer, postgres_server, postgres_url  # noqa: F401, fixtures

IS_SOAK = os.environ.get("TICKWHEEL_SOAK") == "1"
RESTARTS, EVERY_S = (60, 60.0) if IS_SOAK else (2, 5.0)
CONCURRENCY = 8
TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.timeout(RESTARTS * (EVERY_S + 20) + 300)


@pytest.fixture
def site(postgres_server: PostgresServer) -> Iterator[dict[str, str]]:  # noqa: F811
    """The environment of its processes, with an empty database."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "DJANGO_SETTINGS_MODULE": "django_site.settings"}
    yield {**environment, "TICKWHEEL_SITE": postgres_server.url}
    with suppress(AssertionError):  # it runs
        postgres_server.start()


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    """They are ended after the test."""
    with ExitStack() as stack:
        yield stack


def test_each_task_of_a_site_runs_while_its_database_restarts_and_what_runs_twice_is_marked__D5(
    site: dict[str, str],
    postgres_server: PostgresServer,  # noqa: F811
    processes: ExitStack,
    tmp_path: Path,
) -> None:
    noted, log = tmp_path / "noted", tmp_path / "log"
    pipes: Any = {"text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    load = started(processes, [str(TESTS / "django_site/load.py"), str(noted)], env=site, **pipes)
    assert load.stdout.readline() == "migrated\n"
    command = ["-m", "django", "tickwheel_worker", "--store", str(tmp_path / "tasks.db")]
    told = processes.enter_context(log.open("w"))
    worker = started(processes, [*command, f"--concurrency={CONCURRENCY}"], env=site, stderr=told)

    def runs_more_than(before: int) -> bool:
        assert worker.poll() is None, log.read_text()
        assert load.poll() is None
        return lines_of(noted) > before

    for number in range(RESTARTS):
        until_s, before = time.monotonic() + EVERY_S, lines_of(noted)
        wait_until(partial(runs_more_than, before), "tasks run")
        time.sleep(max(0.0, until_s - time.monotonic()))
        how = ("fast", "immediate")[number % 2]
        postgres_server.stop(how)
        time.sleep(random.uniform(0.0, 3.0))
        postgres_server.start()
    committed, rolled_back = json.loads(load.communicate("", timeout=60)[0])
    wait_until(lambda: not statuses(postgres_server) - {"SUCCESSFUL", "FAILED"}, "all have ended")
    worker.terminate()
    assert worker.wait(60) == 0, log.read_text()
    check(postgres_server, noted, set(committed), set(rolled_back))
    assert "dead letter" not in log.read_text()


def started(processes: ExitStack, command: list[str], **how: Any) -> Any:
    process = processes.enter_context(subprocess.Popen([sys.executable, *command], **how))
    processes.callback(process.kill)
    return process


def check(server: PostgresServer, noted: Path, committed: set[str], rolled_back: set[str]) -> None:
    with psycopg.connect(server.url) as connection:
        rows = connection.execute("SELECT args->>1, status, worker_ids FROM tickwheel_taskrecord").fetchall()
        assert connection.execute("SELECT count(*) FROM tickwheel_task_outbox").fetchone() == (0,)
    runs: dict[str, list[int]] = {}
    for line in noted.read_text().splitlines():
        name, attempt = line.split()
        runs.setdefault(name, []).append(int(attempt))
    again = {name: attempts for name, attempts in runs.items() if len(attempts) > 1}
    starts = Counter(len(worker_ids) for _, _, worker_ids in rows)
    print(f"{RESTARTS} restarts, {len(rows):,} tasks, {len(again)} of them more than once; by attempts: {dict(starts)}")
    assert {status for _, status, _ in rows} == {"SUCCESSFUL"}
    names = {name for name, _, _ in rows}
    assert committed <= names
    assert not rolled_back & names
    assert set(runs) == names
    assert all(len(set(attempts)) == len(attempts) for attempts in again.values()), "what runs again can tell"
    assert sum(len(attempts) - 1 for attempts in again.values()) <= RESTARTS * CONCURRENCY, again


def statuses(server: PostgresServer) -> set[Any]:
    with psycopg.connect(server.url) as connection:
        return {status for (status,) in connection.execute("SELECT DISTINCT status FROM tickwheel_taskrecord")}


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_until(holds: Any, what: str) -> None:
    until_s = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until_s, what
        time.sleep(0.05)
