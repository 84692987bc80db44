"""The worker while the database of tasks is down, and when it is back."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_site.setting_up import set_up

set_up()

from django.db import connection, connections  # noqa: E402, Django must be set up

from django_site import tasks  # noqa: E402
from tickwheel._stopping import Stopped  # noqa: E402
from tickwheel.django import running  # noqa: E402
from tickwheel.django.database import TABLE  # noqa: E402
from tickwheel.django.management.commands import tickwheel_worker  # noqa: E402
from tickwheel.django.models import TaskRecord  # noqa: E402
from tickwheel.django.running import Runner  # noqa: E402

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    TaskRecord.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}")


def wait_until(holds: Callable[[], object]) -> None:
    until_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@contextmanager
def worker(folder: Path, **options: Any) -> Iterator[None]:
    """It works in a thread of this process."""
    given = {"store": folder / "tasks.db", "database": "default", "max_attempts": 1, "task_timeout": 60.0, **options}
    ending = threading.Event()

    def sleep(seconds: float) -> None:
        if ending.wait(seconds):
            raise Stopped(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tickwheel_worker, "time", SimpleNamespace(sleep=sleep))
        thread = threading.Thread(target=tickwheel_worker.Command()._work, args=[given])
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(60)


def test_what_probes_a_database_that_was_down_is_no_long_task__D6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_down = threading.Event()
    real = Runner._records.fget
    assert real is not None

    def records(self: Runner) -> Any:
        if is_down.is_set():
            raise running.OperationalError("the server is gone")
        return real(self)

    real_probe = Runner._probe

    def probe(self: Runner) -> None:
        if is_down.is_set():
            raise running.OperationalError("the server is gone")
        real_probe(self)

    monkeypatch.setattr(Runner, "_records", property(records))
    monkeypatch.setattr(Runner, "_probe", probe)
    tasks.may_end.clear()
    is_down.set()
    for _ in range(6):
        tasks.hang.enqueue()
    try:
        with worker(tmp_path, concurrency=16):
            wait_until(lambda: "the destination is down" in caplog.text)
            is_down.clear()
            wait_until(lambda: "the destination is up again" in caplog.text)
            assert not TaskRecord.objects.filter(finished_at__isnull=False).exists(), "no task has ended yet"
            tasks.may_end.set()
            wait_until(lambda: TaskRecord.objects.filter(status="SUCCESSFUL").count() == 6)
    finally:
        tasks.may_end.set()


@pytest.mark.parametrize("alias", ["default", "second"])
def test_a_connection_that_died_while_idle_is_made_anew_before_a_task__D6(
    monkeypatch: pytest.MonkeyPatch, alias: str
) -> None:
    result = tasks.ask.enqueue(alias)
    kept = connections[alias]
    kept.close()
    monkeypatch.setitem(kept.settings_dict, "CONN_MAX_AGE", None)
    kept.ensure_connection()
    kept.connection.close()  # each statement fails from now on
    monkeypatch.setattr(
        kept, "is_usable", lambda: False
    )  # as that of PostgreSQL finds out; with SQLite it does not look
    Runner("default", 1).run_task(result.id)
    result.refresh()
    assert (result.status, result.attempts) == ("SUCCESSFUL", 1)
