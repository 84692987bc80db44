"""The backend of Django's tasks: transactions, results, and how a task is run."""

import asyncio
import logging
import os
import sys
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import ProgramLimitExceeded

from django_site.setting_up import set_up

set_up()

from django.core import checks  # noqa: E402, Django must be set up
from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from django.core.management import CommandError, call_command  # noqa: E402
from django.db import connection, connections, transaction  # noqa: E402
from django.db.utils import ConnectionHandler  # noqa: E402
from django.test import TransactionTestCase, override_settings  # noqa: E402
from django.utils import timezone, translation  # noqa: E402

from django_site import tasks  # noqa: E402
from tickwheel.delivery import Unavailable  # noqa: E402
from tickwheel.django import backend as backend_module  # noqa: E402
from tickwheel.django import running  # noqa: E402
from tickwheel.django.api import TaskResultDoesNotExist, TaskResultStatus, task_backends, task_finished  # noqa: E402
from tickwheel.django.database import TABLE, outbox_of  # noqa: E402
from tickwheel.django.management.commands import tickwheel_worker  # noqa: E402
from tickwheel.django.models import TaskRecord  # noqa: E402
from tickwheel.django.running import Runner, TaskFailed  # noqa: E402

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    TaskRecord.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}")


def outbox() -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT record FROM {TABLE} ORDER BY n")
        return [msgspec.json.decode(record) for (record,) in cursor.fetchall()]


def run(result: Any, *, max_attempts: int = 1) -> Any:
    """As the worker does it; the result afterwards."""
    assert result.id in [row["id"] for row in outbox()]
    with suppress(TaskFailed):
        Runner("default", max_attempts).run_task(result.id)
    result.refresh()
    return result


def test_a_task_is_there_exactly_if_the_transaction_commits() -> None:
    with transaction.atomic():
        kept = tasks.add.enqueue(1, 2)
    with transaction.atomic():
        lost = tasks.add.enqueue(1, 2)
        transaction.set_rollback(True)
    assert [row["id"] for row in outbox()] == [kept.id]
    assert tasks.add.get_result(kept.id).status == TaskResultStatus.READY
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(lost.id)


def test_without_a_transaction_both_rows_are_written_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(backend_module, "enqueue", fail)
    with pytest.raises(RuntimeError, match="the disk is full"):
        tasks.add.enqueue(1, 2)
    assert not TaskRecord.objects.exists()


def test_run_after_is_the_due_time() -> None:
    at = datetime(2100, 1, 1, 12, tzinfo=UTC)
    result = tasks.add.using(run_after=at).enqueue(1, 2)
    assert [row["due"] for row in outbox()] == ["2100-01-01T12:00:00+00:00"]
    assert tasks.add.get_result(result.id).task.run_after == at


@override_settings(USE_TZ=False)
def test_without_time_zones_a_task_is_enqueued_too() -> None:
    before = datetime.now(UTC)
    tasks.add.enqueue(1, 2)
    tasks.add.using(run_after=datetime(2100, 1, 1, 12)).enqueue(1, 2)  # noqa: DTZ001, as without USE_TZ
    now, later = (datetime.fromisoformat(row["due"]) for row in outbox())
    assert before - timedelta(milliseconds=1) <= now <= datetime.now(UTC)
    assert later == datetime(2100, 1, 1, 12, tzinfo=timezone.get_default_timezone())


@override_settings(USE_TZ=False)
def test_without_time_zones_run_after_is_in_the_zone_of_the_settings_whichever_is_active__D3() -> None:
    with timezone.override("Asia/Tokyo"):
        tasks.add.using(run_after=datetime(2100, 1, 1, 12)).enqueue(1, 2)  # noqa: DTZ001, as without USE_TZ
    assert [row["due"] for row in outbox()] == ["2100-01-01T12:00:00-06:00"]


def test_what_a_task_activates_in_its_thread_is_over_with_the_task() -> None:
    zone, language = timezone.get_current_timezone_name(), translation.get_language()
    assert run(tasks.activate.enqueue("Asia/Tokyo", "de")).status == TaskResultStatus.SUCCESSFUL
    assert (timezone.get_current_timezone_name(), translation.get_language()) == (zone, language)


def test_a_transaction_that_a_task_leaves_open_in_another_database_is_over_with_the_task() -> None:
    assert run(tasks.leave_open.enqueue("second")).status == TaskResultStatus.SUCCESSFUL
    assert not connections["second"].in_atomic_block
    assert connections["second"].get_autocommit()
    with connections["second"].cursor() as cursor:
        cursor.execute("CREATE TABLE left_open (n)")  # it was rolled back
        cursor.execute("DROP TABLE left_open")
    connections["second"].close()


def test_a_task_runs_and_its_result_is_kept() -> None:
    done = run(tasks.add.enqueue(1, other=2))
    assert (done.status, done.return_value, done.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)
    assert done.enqueued_at <= done.started_at <= done.finished_at <= timezone.now()


def test_a_coroutine_function_and_one_under_another_name_run_too() -> None:
    assert run(tasks.add_later.enqueue(1, 2)).return_value == 3
    assert run(tasks.renamed.enqueue(7)).return_value == 7


def test_from_asyncio_a_task_is_enqueued_and_its_result_is_read() -> None:
    async def enqueue() -> Any:
        result = await tasks.add.aenqueue(1, 2)
        return result, await tasks.add.aget_result(result.id)

    result, found = asyncio.run(enqueue())
    assert result == found


def test_a_failed_attempt_is_kept_and_the_last_one_makes_the_task_failed() -> None:
    result = tasks.attempt.enqueue(until=3)
    run(result, max_attempts=2)
    assert (result.status, result.finished_at) == (TaskResultStatus.READY, None)
    run(result, max_attempts=2)
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 2)
    assert [error.exception_class for error in result.errors] == [RuntimeError, RuntimeError]
    assert "RuntimeError: attempt 2" in result.errors[1].traceback
    assert run(result, max_attempts=2).attempts == 2, "it has finished, and is not run again"


def test_a_task_that_was_successful_is_not_run_again() -> None:
    result = run(tasks.attempt.enqueue())
    assert run(result).attempts == 1


def test_a_crash_in_the_middle_is_no_failure() -> None:
    result = tasks.attempt.enqueue()
    TaskRecord.objects.update(status=TaskResultStatus.RUNNING, worker_ids=["another worker, which was killed"])
    run(result)
    assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, 2, [])


def test_a_task_that_kills_its_worker_runs_five_times_and_then_has_failed() -> None:
    result = tasks.attempt.enqueue()
    TaskRecord.objects.update(status=TaskResultStatus.RUNNING, worker_ids=["one", "two", "three", "four"])
    assert run(result).status == TaskResultStatus.SUCCESSFUL
    result = tasks.attempt.enqueue()
    killed = TaskRecord.objects.filter(id=result.id)
    killed.update(status=TaskResultStatus.RUNNING, worker_ids=["one", "two", "three", "four", "five"])
    with finished() as told:
        run(result)
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 5)
    assert [error.exception_class for error in result.errors] == [running.WorkerCrashed]
    assert told == [(result.id, "FAILED")]


def test_a_database_that_is_down_when_the_crashes_are_too_many_is_waited_for__D6(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise running.OperationalError("the server is gone")

    result = tasks.attempt.enqueue()
    TaskRecord.objects.update(status=TaskResultStatus.RUNNING, worker_ids=[*"abcde"])
    monkeypatch.setattr(Runner, "_note_end", fail)
    with pytest.raises(Unavailable):
        run(result)
    monkeypatch.undo()
    assert run(result).status == TaskResultStatus.FAILED


def test_attempts_that_failed_in_other_workers_are_no_crashes() -> None:
    result = tasks.attempt.enqueue()
    TaskRecord.objects.update(worker_ids=[*"abcdef"], errors=[running._failure_of(OSError())] * 6)
    assert run(result, max_attempts=9).status == TaskResultStatus.SUCCESSFUL


@contextmanager
def hanging(runner: Runner) -> Iterator[Any]:
    """The result of a task that hangs, and was cut off; its thread ends with the block."""
    tasks.begun.clear()
    tasks.may_end.clear()
    result = tasks.hang.enqueue()
    thread = threading.Thread(target=runner.run_task, args=[result.id])
    thread.start()
    try:
        assert tasks.begun.wait(20)
        runner.run_task(result.id)  # as after a cut-off
        result.refresh()
        yield result
    finally:
        tasks.may_end.set()
        thread.join(20)
        result.refresh()


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_task_that_was_cut_off_has_failed_and_what_its_thread_ends_with_holds(max_attempts: int) -> None:
    with finished() as told, hanging(Runner("default", max_attempts)) as result:
        assert (result.status, [error.exception_class for error in result.errors]) == ("FAILED", [TimeoutError])
        assert result.attempts == 1, "it is not tried again beside its thread"
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "after all")
    assert told == [(result.id, "FAILED"), (result.id, "SUCCESSFUL")]


def test_a_task_that_was_cut_off_and_then_raises_stays_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Runner, record: TaskRecord) -> None:
        self._fail(record, RuntimeError("after all"))

    monkeypatch.setattr(Runner, "_succeed", fail)
    with hanging(Runner("default", 2)) as result:
        pass
    assert (result.status, [error.exception_class for error in result.errors]) == ("FAILED", [RuntimeError])


def test_a_task_whose_result_could_not_be_written_as_the_database_was_down_runs_again__D6(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise running.OperationalError("the server is gone")

    result = tasks.add.enqueue(1, 2)
    runner = Runner("default", 1)
    monkeypatch.setattr(Runner, "_succeed", fail)
    with pytest.raises(Unavailable):
        runner.run_task(result.id)
    monkeypatch.undo()
    runner.run_task(result.id)
    result.refresh()
    assert (result.status, result.attempts, result.errors) == (TaskResultStatus.SUCCESSFUL, 2, [])


def test_a_task_finds_no_connection_open_that_would_be_idle_while_it_runs() -> None:
    assert run(tasks.look_at_connection.enqueue()).return_value is False


def test_what_a_task_leaves_open_does_not_touch_its_result() -> None:
    assert run(tasks.leave_open.enqueue()).status == TaskResultStatus.SUCCESSFUL


@pytest.mark.parametrize(("what", "error"), [("object", "TypeError"), ("nan", "IntegrityError")])
def test_a_value_that_can_t_be_kept_is_a_failure(what: str, error: str) -> None:
    done = run(tasks.unwritable.enqueue(what))
    assert error in done.errors[0].exception_class_path


def test_a_value_past_a_limit_of_postgresql_is_a_failure_and_no_outage__D6(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: Runner, record: TaskRecord) -> bool:
        if record.return_value is not None:
            raise running.OperationalError("too long") from ProgramLimitExceeded()
        return written(self, record)

    written = Runner._write
    monkeypatch.setattr(Runner, "_write", write)
    done = run(tasks.add.enqueue(1, 2))
    assert (done.status, [error.exception_class for error in done.errors]) == ("FAILED", [running.OperationalError])


def test_a_long_error_is_kept_in_part() -> None:
    text = running._failure_of(RuntimeError(f"begin{'x' * (2 << 20)}end"))["traceback"]
    assert len(text) <= 1 << 20
    assert ("begin" in text, text.endswith("end\n")) == (True, True)


def test_a_task_that_ends_the_interpreter_only_fails() -> None:
    assert run(tasks.leave.enqueue()).errors[0].exception_class is SystemExit


def test_the_text_of_an_error_may_be_of_any_characters() -> None:
    logging.disable()  # pytest-xdist can't pass such a line on
    try:
        failed = run(tasks.fail_oddly.enqueue())
    finally:
        logging.disable(logging.NOTSET)
    assert r"odd \ud800 and \0" in failed.errors[0].traceback


def test_an_error_whose_text_fails_is_a_failure_too() -> None:
    class Untellable(Exception):
        @property
        def __notes__(self) -> list[str]:
            raise RuntimeError("there are no notes")

    assert "Untellable" in running._failure_of(Untellable())["traceback"]


def test_a_child_that_a_task_forks_writes_no_result__rule7() -> None:
    process = os.getpid()
    done = run(tasks.fork.enqueue())
    if os.getpid() != process:
        os._exit(1)
    assert (done.status, done.return_value) == (TaskResultStatus.SUCCESSFUL, 0)


def test_a_result_that_is_deleted_while_its_task_runs_stays_deleted() -> None:
    Runner("default", 1).run_task(tasks.delete_own_record.enqueue().id)
    assert not TaskRecord.objects.exists()


def test_a_task_whose_result_is_deleted_just_before_its_start_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete_first(self: Runner, record: TaskRecord) -> bool:
        TaskRecord.objects.all().delete()
        return note_start(self, record)

    note_start = Runner._note_start
    monkeypatch.setattr(Runner, "_note_start", delete_first)
    with finished() as told:
        Runner("default", 1).run_task(tasks.add.enqueue(1, 2).id)
    assert (told, TaskRecord.objects.count()) == ([], 0)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"path": "django_site.tasks.gone"}, "ImportError"),
        ({"backend": "gone"}, "InvalidTaskBackend"),
        ({"queue_name": "gone"}, "InvalidTask"),
    ],
)
def test_a_task_whose_function_backend_or_queue_is_gone_has_failed_and_the_log_says_so(
    changed: dict[str, str], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = tasks.add.enqueue(1, 2)
    TaskRecord.objects.update(**changed)
    Runner("default", 1).run_task(result.id)
    record = TaskRecord.objects.get()
    assert record.status == "FAILED"
    assert f".{error}" in record.errors[0]["exception_class_path"]
    assert f"the task {result.id} of {record.path} is FAILED, and task_finished is not sent: " in caplog.text
    assert "gone" in caplog.text


def test_a_database_that_is_down_costs_no_attempt__D6(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise running.OperationalError("the server is gone")

    runner = Runner("default", 1)
    with pytest.raises(Unavailable, match="the server is gone"):
        runner._with_database(fail)


@contextmanager
def finished() -> Iterator[list[tuple[str, str]]]:
    """What `task_finished` tells within the block: ids and statuses."""
    told: list[tuple[str, str]] = []

    def tell(sender: object, task_result: Any, **_: object) -> None:
        told.append((task_result.id, task_result.status))

    task_finished.connect(tell)
    try:
        yield told
    finally:
        task_finished.disconnect(tell)


def test_the_signals_of_django_are_sent() -> None:
    with finished() as told:
        results = [run(tasks.add.enqueue(1, 2)), run(tasks.leave.enqueue())]
    assert told == [(result.id, result.status) for result in results]


def test_the_migration_is_as_the_model_and_the_checks_find_what_is_missing() -> None:
    call_command("makemigrations", "tickwheel", check=True, dry_run=True, verbosity=0)
    backend = task_backends["default"]
    assert backend.check() == []
    with override_settings(INSTALLED_APPS=[]):
        assert [found.id for found in backend.check()] == ["tickwheel.E001"]
    backend.database = "other"
    try:
        assert [found.id for found in checks.run_checks() if found.level == checks.ERROR] == ["tickwheel.E002"]
    finally:
        backend.database = "default"


def test_an_option_of_the_backend_that_does_not_exist_is_an_error_of_the_settings() -> None:
    backend = backend_module.TickwheelBackend("default", {"OPTIONS": {"databse": "second"}})
    (found,) = backend.check()
    assert (found.id, found.msg) == ("tickwheel.E005", "The backend 'default' has no option 'databse'.")


@pytest.mark.parametrize(
    ("pool", "has_checks", "found"),
    [(None, False, []), (True, False, ["tickwheel.E004"]), ({"max_size": 20}, True, []), ({}, False, [])],
)
def test_a_pool_that_gives_dead_connections_to_tasks_is_an_error_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, pool: Any, has_checks: bool, found: list[str]
) -> None:
    settings = {"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"pool": pool}, "CONN_HEALTH_CHECKS": has_checks}
    monkeypatch.setattr(backend_module, "connections", ConnectionHandler({"default": settings}))
    assert [error.id for error in task_backends["default"].check()] == found


@pytest.mark.parametrize(
    ("pool", "most"), [(True, 4), ({"min_size": 2}, 2), ({"min_size": 2, "max_size": 8}, 8), ({"max_size": None}, 4)]
)
def test_a_pool_with_too_few_connections_for_the_worker_is_refused__D6(
    monkeypatch: pytest.MonkeyPatch, pool: Any, most: int
) -> None:
    settings = {"ENGINE": "django.db.backends.postgresql", "NAME": "app", "OPTIONS": {"pool": pool}}
    monkeypatch.setattr(tickwheel_worker, "connections", ConnectionHandler({"default": settings}))
    text = f"the pool of the database 'default' has at most {most} connections: give it a 'max_size' of 9 or more"
    with pytest.raises(CommandError, match=text):
        call_command("tickwheel_worker", concurrency=8, store="no store")


@pytest.mark.parametrize("wrong", ["psycopg_pool", "Pooling doesn't support persistent connections"])
def test_a_pool_that_django_can_not_make_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)
    settings = {"ENGINE": "django.db.backends.postgresql", "NAME": "app", "OPTIONS": {"pool": {"max_size": 20}}}
    settings["CONN_MAX_AGE"] = 0 if wrong == "psycopg_pool" else 60
    monkeypatch.setattr(tickwheel_worker, "connections", ConnectionHandler({"default": settings}))
    with pytest.raises(CommandError, match=wrong):
        call_command("tickwheel_worker", store="/no such folder/store")


@pytest.mark.parametrize(
    ("command", "option", "value", "text"),
    [
        ("tickwheel_worker", "--database", "nope", "argument --database: invalid choice: 'nope'"),
        ("tickwheel_worker", "--task-timeout", "0", "--task-timeout is 0: it may be 0.001 to 86,400"),
        ("tickwheel_worker", "--task-timeout", "nan", "--task-timeout is nan: it may be 0.001 to 86,400"),
        ("tickwheel_prune", "--database", "nope", "argument --database: invalid choice: 'nope'"),
        ("tickwheel_prune", "--days", "-1", "--days is -1: it may be 0 to 36,500"),
        ("tickwheel_prune", "--days", "nan", "--days is nan: it may be 0 to 36,500"),
        ("tickwheel_prune", "--days", "1e9", "--days is 1e+09: it may be 0 to 36,500"),
    ],
)
def test_a_wrong_option_of_a_command_is_told_by_its_name(command: str, option: str, value: str, text: str) -> None:
    with pytest.raises(CommandError) as refused:
        call_command(command, f"{option}={value}")
    assert text in str(refused.value)


def test_the_migration_can_be_taken_back() -> None:
    call_command("migrate", "tickwheel", "zero", verbosity=0)
    assert TABLE not in connection.introspection.table_names()
    call_command("migrate", "tickwheel", verbosity=0)
    assert TABLE in connection.introspection.table_names()


def test_a_transaction_test_case_leaves_no_row_in_the_outbox() -> None:
    class Case(TransactionTestCase):
        def test(self) -> None:
            tasks.add.enqueue(1, 2)
            assert len(outbox()) == 1

    result = unittest.TestResult()
    Case("test")(result)
    assert result.wasSuccessful(), result
    assert outbox() == []


def test_old_results_are_pruned_and_what_waits_is_kept() -> None:
    old, new, waiting = run(tasks.add.enqueue(1, 2)), run(tasks.add.enqueue(1, 2)), tasks.add.enqueue(1, 2)
    TaskRecord.objects.filter(id=old.id).update(finished_at=timezone.now() - timedelta(days=15))
    call_command("tickwheel_prune", verbosity=0)
    assert {record.id for record in TaskRecord.objects.all()} == {new.id, waiting.id}


def test_the_address_of_the_outbox_has_the_options_of_libpq_and_no_others() -> None:
    options = {"sslmode": "require", "isolation_level": 3, "pool": True}
    given = {"NAME": "app", "USER": "me@x", "PASSWORD": "p&/#@", "HOST": "/run", "PORT": "5433", "OPTIONS": options}
    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.postgresql", **given}})
    assert outbox_of(handler["default"]) == (
        "postgresql://?sslmode=require&dbname=app&user=me%40x&password=p%26%2F%23%40&host=%2Frun&port=5433"
        "&table=tickwheel_task_outbox"
    )
    options = {"assume_role": "a role\\1", "options": "-c search_path=app"}
    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.postgresql", "OPTIONS": options}})
    assert conninfo_to_dict(outbox_of(handler["default"]).partition("&table=")[0]) == {
        "options": r"-c search_path=app -c role=a\ role\\1"
    }
    in_memory = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
    with pytest.raises(ImproperlyConfigured, match="is in memory"):
        outbox_of(in_memory["default"])
