"""`manage.py tickwheel_worker` as a process, on SQLite and PostgreSQL."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from delivery.postgres_server import postgres_server, postgres_url  # noqa: F401, fixtures
from django_site.setting_up import set_up
from tickwheel.django.database import TABLE

pytestmark = pytest.mark.timeout(240)
TESTS = Path(__file__).parents[1]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new database."""
    if request.param == "sqlite":
        yield str(tmp_path / "site.db")
        return
    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        if request.param == "kept":
            monkeypatch.setenv("TICKWHEEL_KEEPS", "1")
        if request.param == "by a role":
            connection.execute('CREATE ROLE "an owner"')
            connection.execute("CREATE ROLE somebody LOGIN NOINHERIT IN ROLE \"an owner\" PASSWORD 'not-for-eyes'")
            connection.execute('GRANT ALL ON SCHEMA public TO "an owner"')
            monkeypatch.setenv("TICKWHEEL_ROLE", "an owner")
            url = url.replace("tick:", "somebody:")
        yield url


@pytest.fixture
def start(site: str) -> Iterator[Start]:
    """Starts processes of the site, which are ended after the test."""
    environment = {**os.environ, "TICKWHEEL_SITE": site, "DJANGO_SETTINGS_MODULE": "django_site.settings"}
    environment["PYTHONPATH"] = str(TESTS)
    with contextlib.ExitStack() as processes:

        def start(*command: object) -> "subprocess.Popen[str]":
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = subprocess.Popen([sys.executable, *map(str, command)], env=environment, **pipes)  # type: ignore[call-overload]
            processes.enter_context(process)
            processes.callback(process.kill)
            return process

        yield start


def produce(start: Start, what: str, path: Path) -> "subprocess.Popen[str]":
    process = start(TESTS / "django_site/producer.py", what, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "enqueued\n", process.stderr and process.stderr.read()
    return process


def work(start: Start, folder: Path, *options: str) -> "subprocess.Popen[str]":
    return start("-m", "django", "tickwheel_worker", "--store", folder / "tasks.db", *options)


def results(producer: "subprocess.Popen[str]") -> Any:
    out, err = producer.communicate(timeout=160)
    assert producer.returncode == 0, err
    return json.loads(out)


def end(worker: "subprocess.Popen[str]") -> str:
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=40)
    assert worker.returncode == 0, err
    return err


def test_tasks_run_at_their_time_and_those_that_were_rolled_back_do_not(start: Start, tmp_path: Path) -> None:
    worker = work(start, tmp_path)
    producer = produce(start, "each", tmp_path / "noted")
    assert results(producer) == [["SUCCESSFUL", 1]] * 3
    said = end(worker)
    assert "running tasks" in said
    assert "not-for-eyes" not in said
    [(due, at)] = [line.split() for line in (tmp_path / "noted").read_text().splitlines()]
    assert float(at) >= float(due), "never early"


def test_a_task_that_fails_is_tried_again_as_often_as_is_said(start: Start, tmp_path: Path) -> None:
    worker = work(start, tmp_path, "--max-attempts", "2")
    assert results(produce(start, "failing", tmp_path)) == [["SUCCESSFUL", 2], ["FAILED", 2]]
    end(worker)


def test_a_coroutine_that_never_ends_does_not_keep_the_worker__D6(start: Start, tmp_path: Path) -> None:
    """Python itself would wait for its thread."""
    worker = work(start, tmp_path, "--task-timeout", "0.5")
    assert results(produce(start, "hanging", tmp_path)) == [["FAILED", 1]]
    end(worker)


def test_no_task_is_lost_when_the_worker_is_killed__D5(start: Start, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    producer = produce(start, "many", noted)
    random_ = random.Random(7)
    for _ in range(4):
        before = noted.stat().st_size if noted.exists() else 0
        worker = work(start, tmp_path)
        until_s = time.monotonic() + 30
        while (noted.stat().st_size if noted.exists() else 0) == before:
            assert time.monotonic() < until_s
            time.sleep(0.005)
        time.sleep(random_.uniform(0, 0.1))
        worker.kill()
        worker.communicate()
    worker = work(start, tmp_path)
    found = results(producer)
    end(worker)
    assert {status for status, _ in found} == {"SUCCESSFUL"}
    counts = Counter(line.split()[0] for line in noted.read_text().splitlines())
    assert set(counts) == {str(number) for number in range(300)}
    assert counts.total() <= 300 + 4 * 8, "only what ran at a kill runs again"


def wait_for(worker: "subprocess.Popen[str]", text: str) -> None:
    assert worker.stderr is not None
    assert any(text in line for line in iter(worker.stderr.readline, ""))


def test_a_second_worker_waits_and_is_stopped_or_takes_over__D9(start: Start, tmp_path: Path) -> None:
    first = work(start, tmp_path)
    wait_for(first, "running tasks")
    second, third = work(start, tmp_path), work(start, tmp_path)
    for worker in (second, third):
        wait_for(worker, "opening")
    assert "stopped before it ran any task" in end(third)
    first.kill()
    assert results(produce(start, "failing", tmp_path)) == [["FAILED", 1], ["FAILED", 1]]
    end(second)


def test_a_row_that_holds_no_task_is_logged__D2(start: Start, tmp_path: Path) -> None:
    assert start("-m", "django", "migrate", "--verbosity", "0").wait(40) == 0
    worker = work(start, tmp_path)
    insert = f"INSERT INTO {TABLE} (written_ms, record) VALUES (0, 'no task')"
    code = f"import django; django.setup(); django.db.connection.cursor().execute({insert!r})"
    assert start("-c", code).wait(40) == 0
    wait_for(worker, "dead letter of")
    end(worker)


FLUSHES = """if True:
    import django, sys
    django.setup()
    from django.core.management import call_command
    from django.db import connection
    from django_site import tasks

    def rows():
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM tickwheel_task_outbox")
            return cursor.fetchone()[0]

    call_command("migrate", verbosity=0)
    tasks.add.enqueue(1, 2)
    call_command("dumpdata", output=sys.argv[1])
    call_command("flush", interactive=False, verbosity=0)
    print(rows())
    call_command("loaddata", sys.argv[1], verbosity=0)
    tasks.add.enqueue(3, 4)
    print(rows())
"""


def test_the_outbox_is_flushed_dumped_and_loaded_with_the_other_tables(start: Start, tmp_path: Path) -> None:
    out, err = start("-c", FLUSHES, tmp_path / "dump.json").communicate(timeout=60)
    assert out.split() == ["0", "2"], err
    worker = work(start, tmp_path)
    count = "TaskRecord.objects.filter(status='SUCCESSFUL').count()"
    code = "import django, time; django.setup(); from tickwheel.django.models import TaskRecord\n"
    assert start("-c", f"{code}while {count} < 2: time.sleep(0.05)").wait(60) == 0, "both run"
    end(worker)


@pytest.mark.parametrize("site", ["by a role"], indirect=True)
def test_the_reader_of_the_outbox_has_the_role_that_the_site_assumes(start: Start, tmp_path: Path) -> None:
    """The user that logs in has no rights of its own."""
    worker = work(start, tmp_path)
    assert results(produce(start, "each", tmp_path / "noted")) == [["SUCCESSFUL", 1]] * 3
    end(worker)


def wait_until_reader_is_idle(connection: psycopg.Connection) -> None:
    """It has deleted all rows, and its last statement has found none."""
    reader = "query LIKE '%first_rows%' AND state = 'idle' AND pid <> pg_backend_pid()"
    idle = f"SELECT NOT EXISTS (SELECT FROM {TABLE}) AND EXISTS (SELECT FROM pg_stat_activity WHERE {reader})"
    until_s = time.monotonic() + 30
    while connection.execute(idle.encode()).fetchone() != (True,):
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.mark.parametrize("site", ["kept"], indirect=True)
def test_connections_that_the_server_ends_while_they_are_idle_cost_no_task_an_attempt__D6(
    start: Start, tmp_path: Path, site: str
) -> None:
    assert start("-m", "django", "migrate", "--verbosity", "0").wait(60) == 0
    worker = work(start, tmp_path, "--concurrency", "1")
    for number in range(3):
        assert results(produce(start, "each", tmp_path / str(number))) == [["SUCCESSFUL", 1]] * 3
        with psycopg.connect(site, autocommit=True) as connection:
            wait_until_reader_is_idle(connection)
            others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ended = connection.execute(f"SELECT pg_terminate_backend(pid, 20000) {others}".encode()).fetchall()
        assert len(ended) >= 2, "that of the reader, and the one that the thread keeps"
    said = end(worker)
    assert "failed for the first time" not in said
    assert "can't be read" not in said


def test_a_wrong_option_is_told_in_a_line(start: Start, tmp_path: Path, site: str) -> None:
    set_up()
    worker = work(start, tmp_path, "--concurrency", "0")
    _, err = worker.communicate(timeout=40)
    assert worker.returncode == 1
    assert "concurrency is 0: it may be 1 to 1,000,000" in err
    assert "Traceback" not in err


def test_another_worker_goes_on_where_the_disk_of_the_first_is_lost__D21(
    start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = tmp_path / "replicate-to"
    address.touch(0o600)
    address.write_text(f"{request.getfixturevalue('postgres_url')}&store=worker-{request.node.callspec.id}\n")
    (here := tmp_path / "here").mkdir()
    noted = tmp_path / "noted"
    first = work(start, here, "--replicate-to", f"file:{address}")
    producer = produce(start, "many", noted)
    until_s = time.monotonic() + 30
    while not noted.exists():
        assert time.monotonic() < until_s
        time.sleep(0.005)
    first.kill()
    first.communicate()
    shutil.rmtree(here)
    second = work(start, tmp_path, "--replicate-to", f"file:{address}")
    assert {status for status, _ in results(producer)} == {"SUCCESSFUL"}
    assert "not-for-eyes" not in end(second)
    assert {line.split()[0] for line in noted.read_text().splitlines()} == {str(number) for number in range(300)}
