"""The worker while the database of tasks is down, and when it is back."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_site.setting_up import set_up, wait_until

set_up()

from django.db import connection, connections  # noqa: E402, Django must be set up

from django_site import tasks  # noqa: E402
from tickwheel._stopping import Stopped  # noqa: E402
from tickwheel.delivery import Unavailable  # noqa: E402
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


@contextmanager
def worker(folder: Path, **options: Any) -> Iterator[None]:
    """It works in a thread of this process."""
    limits = {"tenant_concurrency": None, "tenant_rate": None, "replicate_to": None}
    given = {"store": folder / "tasks.db", "database": "default", "max_attempts": 1, "task_timeout": 60.0, **limits}
    given |= options
    ending = threading.Event()

    @contextmanager
    def stop_noted() -> Iterator[threading.Event]:
        yield ending
        if ending.is_set():
            raise Stopped(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tickwheel_worker, "stop_noted", stop_noted)
        thread = threading.Thread(target=tickwheel_worker.Command()._work, args=[given])
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(60)


@pytest.fixture
def is_down(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set, the database of tasks does not answer the worker."""
    is_down = threading.Event()
    records, probe = Runner._records.fget, Runner._probe
    assert records is not None

    def unless_down(real: Callable[[Runner], Any]) -> Callable[[Runner], Any]:
        def call(self: Runner) -> Any:
            if is_down.is_set():
                raise running.OperationalError("the server is gone")
            return real(self)

        return call

    monkeypatch.setattr(Runner, "_records", property(unless_down(records)))
    monkeypatch.setattr(Runner, "_probe", unless_down(probe))
    return is_down


def test_a_single_task_is_tried_as_soon_as_the_database_is_back__D6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_down: threading.Event
) -> None:
    """It is too few to show that the destination is down, and its own wait may be long by now."""

    class LongWait(Unavailable):
        def __init__(self, reason: str) -> None:
            super().__init__(reason, retry_after_s=600.0)

    probe, is_probed = Runner._probe, threading.Event()

    def note_probe(self: Runner) -> None:
        try:
            probe(self)
        finally:
            is_probed.set()

    monkeypatch.setattr(running, "Unavailable", LongWait)
    monkeypatch.setattr(Runner, "_probe", note_probe)
    is_down.set()
    result = tasks.add.enqueue(1, 2)
    with worker(tmp_path, concurrency=1):
        wait_until(lambda: "failed for the first time" in caplog.text)
        assert is_probed.wait(60)
        is_down.clear()
        wait_until(lambda: TaskRecord.objects.filter(id=result.id, status="SUCCESSFUL").exists())


def test_what_probes_a_database_that_was_down_is_no_long_task__D6(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_down: threading.Event
) -> None:
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
