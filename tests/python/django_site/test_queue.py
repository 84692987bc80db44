"""The queue of a worker: whose tasks its store has, and what happens when it is closed."""

import signal
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_site.setting_up import set_up, wait_until

set_up()

from django.core import checks  # noqa: E402, Django must be set up
from django.core.management import CommandError, call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.db.utils import ConnectionHandler  # noqa: E402
from django.utils import timezone  # noqa: E402

from django_site import tasks  # noqa: E402
from tickwheel._stopping import Stopped  # noqa: E402
from tickwheel.delivery import Unanswered, Unavailable, WrongUsage  # noqa: E402
from tickwheel.delivery.model.settings import Settings  # noqa: E402
from tickwheel.django import backend as backend_module  # noqa: E402
from tickwheel.django import database  # noqa: E402
from tickwheel.django import queue as queue_module  # noqa: E402
from tickwheel.django.api import task_backends, task_finished  # noqa: E402
from tickwheel.django.database import TABLE  # noqa: E402
from tickwheel.django.management.commands import tickwheel_worker  # noqa: E402
from tickwheel.django.models import TaskRecord  # noqa: E402
from tickwheel.django.queue import TaskQueue  # noqa: E402
from tickwheel.django.running import Runner  # noqa: E402

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    tasks.begun.clear()
    tasks.may_end.clear()
    yield
    tasks.may_end.set()
    TaskRecord.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}")


def queue_of(runner: Runner, folder: Path) -> TaskQueue:
    return TaskQueue(str(folder / "tasks.db"), runner, concurrency=1)


def test_a_store_with_tasks_of_another_database_is_refused_and_they_stay__D5(tmp_path: Path) -> None:
    """That database does not have them, so they would be dropped. Messages without a mark come before."""
    with queue_of(Runner("default", 1, 60.0), tmp_path) as queue:
        queue.put_many([{"id": f"old {n}", "delay_ms": 3_600_000} for n in range(900)])
        tasks.add.using(run_after=timezone.now() + timedelta(days=1)).enqueue(1, 2)
        wait_until(lambda: len(queue) == 901)
    with pytest.raises(WrongUsage, match=r"waiting tasks of the database 'default', and this worker is of 'second'"):
        queue_of(Runner("second", 1, 60.0), tmp_path)
    with queue_of(Runner("default", 1, 60.0), tmp_path) as queue:
        assert len(queue) == 901


def test_a_task_waits_for_its_database_as_long_as_a_queue_may_wait__D6(tmp_path: Path) -> None:
    """By default a message is given up after a day, and its result would say `READY` for ever."""
    given: list[Settings] = []

    class Noting(TaskQueue):
        def _run(self, *how: Any, **options: Any) -> Any:
            given.extend(it for it in how if isinstance(it, Settings))
            return super()._run(*how, **options)

    Noting(str(tmp_path / "tasks.db"), Runner("default", 1, 60.0), concurrency=1).close()
    assert given[0].unanswered_for_s == 365 * 86_400


def test_two_aliases_of_one_database_may_share_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"ENGINE": "django.db.backends.postgresql", "NAME": "app", "HOST": "pooler"}
    aliases = {"default": settings, "direct": {**settings, "HOST": "server"}, "other": {**settings, "NAME": "other"}}
    monkeypatch.setattr(database, "connections", ConnectionHandler(aliases))
    assert database.is_same("default", "direct")
    assert not database.is_same("default", "other")
    assert not database.is_same("gone", "default")


def test_two_services_of_libpq_are_two_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = {
        alias: {"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"service": service}}
        for alias, service in {"default": "shop", "direct": "shop", "other": "billing"}.items()
    }
    monkeypatch.setattr(database, "connections", ConnectionHandler(aliases))
    assert database.is_same("default", "direct")
    assert not database.is_same("default", "other")


@pytest.mark.parametrize(
    ("alias", "store"), [("default", "tickwheel-tasks.db"), ("second", "tickwheel-tasks-second.db")]
)
def test_each_database_has_a_store_of_its_own(monkeypatch: pytest.MonkeyPatch, alias: str, store: str) -> None:
    def refuse(name: str, *_: Any, **__: Any) -> None:
        raise WrongUsage(f"opened: {name}.")

    monkeypatch.setattr(tickwheel_worker, "TaskQueue", refuse)
    with pytest.raises(CommandError, match=f"opened: {store}."):
        call_command("tickwheel_worker", database=alias)


def test_a_queue_that_closes_begins_no_task_and_waits_for_the_one_that_runs__D9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner("default", 1, 60.0)
    real, is_closing = runner.wait_until_idle, threading.Event()

    def wait(at_most_s: float) -> None:
        is_closing.set()
        real(at_most_s)

    monkeypatch.setattr(runner, "wait_until_idle", wait)
    queue = queue_of(runner, tmp_path)
    closing = threading.Thread(target=queue.close)
    try:
        running = tasks.hang.enqueue()
        assert tasks.begun.wait(60)
        due = [tasks.add.enqueue(1, 2) for _ in range(3)]
        wait_until(lambda: len(queue) == 4)
        closing.start()
        assert is_closing.wait(60)
    finally:
        tasks.may_end.set()
    closing.join(60)
    running.refresh()
    assert running.status == "SUCCESSFUL"
    for result in due:
        result.refresh()
        assert (result.status, result.attempts) == ("READY", 0), "it was not begun"
    with queue_of(Runner("default", 1, 60.0), tmp_path):
        wait_until(lambda: TaskRecord.objects.filter(status="SUCCESSFUL").count() == 4)
    assert {len(record.worker_ids) for record in TaskRecord.objects.all()} == {1}


def test_the_first_signal_while_a_queue_closes_cuts_no_task_off__D9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that ends because delivery has failed closes before any signal."""
    runner = Runner("default", 1, 60.0)
    real, calls = runner.wait_until_idle, []

    def wait(at_most_s: float) -> None:
        calls.append(at_most_s)
        if len(calls) == 1:
            raise Stopped(signal.SIGTERM)
        tasks.may_end.set()
        real(at_most_s)

    monkeypatch.setattr(runner, "wait_until_idle", wait)
    queue = queue_of(runner, tmp_path)
    running = tasks.hang.enqueue()
    assert tasks.begun.wait(60)
    queue.close()
    running.refresh()
    assert (running.status, calls) == ("SUCCESSFUL", [30.0, 30.0])


def test_a_task_that_has_ended_since_its_record_was_read_does_not_begin__D6() -> None:
    tasks.add.enqueue(1, 2)
    read = TaskRecord.objects.get()
    TaskRecord.objects.update(status="SUCCESSFUL")
    assert not Runner("default", 1, 60.0)._note_start(read)
    record = TaskRecord.objects.get()
    assert (record.status, record.worker_ids) == ("SUCCESSFUL", [])


def test_a_task_that_hangs_in_the_only_place_has_failed_until_it_ends__D6(tmp_path: Path) -> None:
    runner = Runner("default", 1, 60.0)
    with queue_of(runner, tmp_path):
        result = tasks.hang.enqueue()
        assert tasks.begun.wait(60)
        runner.cut_off()
        result.refresh()
        assert result.status == "RUNNING"
        runner.task_timeout_s = 0.0
        runner.cut_off()
        result.refresh()
        assert (result.status, result.errors[0].exception_class_path) == ("FAILED", "builtins.TimeoutError")
        runner.wait_until_idle(60.0)
        assert runner.is_running, "a stop does not wait for it"
        tasks.may_end.set()
        wait_until(lambda: TaskRecord.objects.get().status == "SUCCESSFUL")


def test_a_task_whose_start_waits_for_the_database_is_not_cut_off__D6(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have failed without having run."""
    runner = Runner("default", 1)
    real, waits, may_start = runner._note_start, threading.Event(), threading.Event()

    def start(record: TaskRecord) -> bool:
        waits.set()
        assert may_start.wait(30)
        return real(record)

    monkeypatch.setattr(runner, "_note_start", start)
    result = tasks.add.enqueue(1, 2)
    thread = threading.Thread(target=runner.run_task, args=[result.id])
    thread.start()
    try:
        assert waits.wait(30)
        runner.cut_off()
        with pytest.raises(Unanswered):
            runner.run_task(result.id)
    finally:
        may_start.set()
        thread.join(30)
    result.refresh()
    assert (result.status, result.attempts, result.errors) == ("SUCCESSFUL", 1, [])


def test_a_task_whose_start_waits_for_the_database_does_not_begin_once_the_worker_stops__D6(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = Runner("default", 1)
    real = runner._note_start

    def start(record: TaskRecord) -> bool:
        runner.stop()
        return real(record)

    monkeypatch.setattr(runner, "_note_start", start)
    result = tasks.add.enqueue(1, 2)
    refused: list[BaseException] = []

    def run() -> None:
        try:
            runner.run_task(result.id)
        except Unavailable as error:
            refused.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: TaskRecord.objects.get().started_at is not None)
        wait_until(lambda: not runner.is_running)
        record = TaskRecord.objects.get()
        assert (record.status, record.worker_ids, record.finished_at) == ("READY", [], None)
        assert refused == [], "it keeps its place until the queue is closed"
    finally:
        runner.let_go()
        thread.join(30)
    assert len(refused) == 1


def test_of_two_calls_of_a_task_that_come_at_once_one_begins__D6(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner("default", 1, 60.0)
    real, both = runner._begins, threading.Barrier(2)

    def begins(record_id: str) -> bool:
        both.wait(30)
        return real(record_id)

    monkeypatch.setattr(runner, "_begins", begins)
    result = tasks.hang.enqueue()
    unanswered: list[BaseException] = []

    def run() -> None:
        try:
            runner.run_task(result.id)
        except Unanswered as error:
            unanswered.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert tasks.begun.wait(60)
        wait_until(lambda: bool(unanswered))
    finally:
        tasks.may_end.set()
        for thread in threads:
            thread.join(30)
    result.refresh()
    assert (result.status, result.attempts) == ("SUCCESSFUL", 1)


def test_a_task_that_fails_as_it_is_cut_off_stays_failed__D6() -> None:
    """Its message may be gone, so nothing would run a task that is `READY`."""
    result = tasks.add.enqueue(1, 2)
    read = TaskRecord.objects.get()
    TaskRecord.objects.update(status="FAILED")
    Runner("default", 3)._fail(read, RuntimeError("after all"))
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", RuntimeError)


def test_a_receiver_that_raises_ends_no_worker__D6(tmp_path: Path) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("not mine")

    task_finished.connect(refuse)
    runner = Runner("default", 1, 60.0)
    try:
        with queue_of(runner, tmp_path):
            result = tasks.hang.enqueue()
            assert tasks.begun.wait(60)
            runner.task_timeout_s = 0.0
            runner.cut_off()
            result.refresh()
            assert result.status == "FAILED"
            tasks.may_end.set()
        added = tasks.add.enqueue(1, 2)
        Runner("default", 1).run_task(added.id)  # raises nothing: the task is done
        added.refresh()
        assert added.return_value == 3
    finally:
        task_finished.disconnect(refuse)


def test_psycopg_2_alone_is_told_by_the_check_and_by_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django runs with it, and `enqueue` does; the worker does not."""
    settings = ConnectionHandler({"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "app"}})
    for module in (backend_module, queue_module):
        monkeypatch.setattr(module, "connections", settings)
    assert task_backends["default"].check() == []
    monkeypatch.setitem(sys.modules, "psycopg", None)
    (found,) = task_backends["default"].check()
    assert found.id == "tickwheel.W002"
    assert "pip install 'tickwheel[postgresql]'" in found.hint
    with pytest.raises(
        CommandError, match=r"psycopg 3 can't be imported .*: run pip install 'tickwheel\[postgresql\]'"
    ):
        call_command("tickwheel_worker", store=str(tmp_path / "tasks.db"))


@pytest.fixture
def backend_of_second() -> Iterator[None]:
    """The setting `TASKS` names the database "second"."""
    backend = task_backends["default"]
    backend.database = "second"
    yield
    backend.database = "default"


@pytest.mark.usefixtures("backend_of_second")
def test_without_an_option_the_commands_take_the_database_that_the_settings_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: str, runner: Runner, **__: Any) -> None:
        raise WrongUsage(f"the worker of {runner.database}")

    monkeypatch.setattr(tickwheel_worker, "TaskQueue", refuse)
    with pytest.raises(CommandError, match="the worker of second"):
        call_command("tickwheel_worker")
    call_command("migrate", database="second", verbosity=0)
    try:
        call_command("tickwheel_prune")
        assert capsys.readouterr().out == "results deleted: 0\n"
    finally:
        call_command("migrate", "tickwheel", "zero", database="second", verbosity=0)


@pytest.mark.usefixtures("backend_of_second")
def test_the_commands_ask_for_a_database_if_the_settings_name_two(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        backend_module.TickwheelBackend("default", {"OPTIONS": {"database": alias}}) for alias in ("second", "default")
    ]
    monkeypatch.setattr(backend_module.task_backends, "all", lambda: both)
    for command in ("tickwheel_worker", "tickwheel_prune"):
        with pytest.raises(CommandError, match="these databases: default, second: name one by --database"):
            call_command(command)


@pytest.mark.usefixtures("backend_of_second")
def test_the_check_of_a_database_without_tables_says_how_to_make_them() -> None:
    def found() -> list[Any]:
        return [it for it in checks.run_checks(databases=["default", "second"]) if it.id == "tickwheel.W001"]

    (warning,) = found()
    assert (warning.msg, warning.hint) == (
        "The database 'second' has no tables for tasks.",
        "Run manage.py migrate --database second.",
    )
    call_command("migrate", database="second", verbosity=0)
    try:
        assert not found()
    finally:
        call_command("migrate", "tickwheel", "zero", database="second", verbosity=0)


def test_queues_take_turns_and_have_limits__D24(tmp_path: Path) -> None:
    path = tmp_path / "noted"
    for n in range(30):
        tasks.note_slowly.enqueue(str(path), f"default{n}")
    tasks.note_slowly.using(queue_name="mail").enqueue(str(path), "mail")
    with queue_of(Runner("default", 1, 60.0), tmp_path) as queue:
        wait_until(lambda: path.exists() and "mail" in path.read_text())
        assert [it.tenant for it in queue.view.list(tenant="mail").messages] in (["mail"], [])
        assert len(path.read_text().splitlines()) < 25, "it did not wait for those before it"
    for options, why in (
        ({"tenant_concurrency": 0}, "tenant-concurrency is 0: it may be 1 to"),
        ({"tenant_rate": "fast"}, "the rate 'fast' is none: write it as 100/s"),
    ):
        with pytest.raises(CommandError, match=why):
            call_command("tickwheel_worker", store=str(tmp_path / "other.db"), **options)


def test_a_queue_that_no_tenant_can_be_named_as_counts_as_the_default__D24() -> None:
    names = {"default": None, "mail": "mail", "my queue": None, "..": None, "q.1_a-b": "q.1_a-b", "x" * 101: None}
    for name, tenant in names.items():
        assert backend_module._tenant_of(SimpleNamespace(queue_name=name)) == tenant  # type: ignore[arg-type]
