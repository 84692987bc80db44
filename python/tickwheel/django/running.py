"""Runs a task whose time has come, and keeps what became of it.

- A task that fails is tried again as the worker's `--max-attempts` says; its status is READY between two attempts, and
  FAILED after the last one. What counts are the errors in its record.
- A task that was running when the worker was killed runs again, and that is no failure; `CRASHES` times at most, as it
  may be what kills the worker. One that has finished is not run again.
- A task that was cut off, as it took too long, has failed. Its thread may still end, and then its outcome holds.
- A database that is down costs no attempt: all tasks wait.
"""

import logging
import os
import socket
from collections.abc import Callable
from traceback import format_exception
from typing import Any, Final

import msgspec
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, close_old_connections
from django.utils import timezone

from tickwheel.delivery import Delivery, Letter, Unavailable
from tickwheel.django.api import (
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from tickwheel.django.models import TaskRecord
from tickwheel.django.results import result_of

_FINISHED: Final = (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)

logger: Final = logging.getLogger("tickwheel.django")

CRASHES: Final = 4
"""How often a task runs again because the worker ended in the middle."""


class TaskFailed(Exception):
    """An attempt has failed, as the result tells, and there is another one."""


class Runner:
    """Runs the tasks of a database, each until it has failed `max_attempts` times. To be called from any thread."""

    def __init__(self, database: str, max_attempts: int) -> None:
        self._database = database
        self._max_attempts = max_attempts
        self._worker_id = f"{socket.gethostname()}-{os.getpid()}"
        self._in_progress: set[str] = set()  # also those that were cut off, as long as their threads go on

    def run(self, delivery: Delivery) -> None:
        """Run the task of a delivery. Errors: those of `run_task`."""
        self.run_task(delivery.message.id)

    def run_task(self, record_id: str) -> None:
        """Run a task. Errors: `TaskFailed`; `Unavailable` if the database is down."""
        self._with_database(lambda: self._run(record_id))

    def give_up(self, letter: Letter) -> None:
        """Note that a task failed: its workers have crashed too often."""
        if letter.source == "delivery":  # and not a row of the outbox that holds no task
            self._with_database(lambda: self._give_up(letter))

    def _with_database(self, work: Callable[[], None]) -> None:
        close_old_connections()
        try:
            work()
        except (OperationalError, InterfaceError) as error:
            raise Unavailable(f"the database of tasks: {error}") from error
        finally:
            close_old_connections()

    def _run(self, record_id: str) -> None:
        record = self._records.filter(id=record_id).first()
        if record is None:
            logger.warning("the task %s is not in the database any more, and is not run", record_id)
            return
        if record.status in _FINISHED:
            logger.info("the task %s has finished before, and is not run again", record_id)
            return
        if record_id in self._in_progress:
            self._note_failure(record, None, TimeoutError("it took too long, and its thread is left alone"))
            if record.status in _FINISHED:
                return
        self._in_progress.add(record_id)
        try:
            self._note_start(record)
            self._call(record)
        finally:
            self._in_progress.discard(record_id)

    def _call(self, record: TaskRecord) -> None:
        result = None
        try:
            result = result_of(record)
            task_started.send(type(result.task.get_backend()), task_result=result)
            record.return_value = _value_of(result)
        except BaseException as error:
            self._fail(record, result, error)
        else:
            self._succeed(record, result)

    def _note_start(self, record: TaskRecord) -> None:
        record.status, record.last_attempted_at = TaskResultStatus.RUNNING, timezone.now()
        record.started_at = record.started_at or record.last_attempted_at
        record.worker_ids = [*record.worker_ids, self._worker_id]
        record.save(using=self._database)

    def _succeed(self, record: TaskRecord, result: TaskResult) -> None:
        record.status, record.finished_at = TaskResultStatus.SUCCESSFUL, timezone.now()
        try:
            record.save(using=self._database)
        except (DataError, IntegrityError, ValueError) as error:  # the database can't hold what it returned
            record.return_value = None
            self._fail(record, result, error)
        else:
            _tell_finished(result_of(record))

    def _fail(self, record: TaskRecord, result: TaskResult | None, error: BaseException) -> None:
        """In the handler of the error, which Django's log shows."""
        self._note_failure(record, result, error)
        if record.status not in _FINISHED:
            raise TaskFailed(f"{type(error).__name__}: {error}") from error

    def _note_failure(self, record: TaskRecord, result: TaskResult | None, error: BaseException) -> None:
        kind = type(error)
        text = "".join(format_exception(error)).encode(errors="backslashreplace").decode()
        text = text.replace("\0", "\\0")  # which PostgreSQL can't hold
        failure = {"exception_class_path": f"{kind.__module__}.{kind.__qualname__}", "traceback": text}
        record.errors = [*record.errors, failure]
        is_last = len(record.errors) >= self._max_attempts
        record.status = TaskResultStatus.FAILED if is_last else TaskResultStatus.READY
        record.finished_at = timezone.now() if is_last else None
        record.save(using=self._database)
        if is_last and result is not None:
            _tell_finished(result_of(record))

    def _give_up(self, letter: Letter) -> None:
        record = self._records.filter(id=msgspec.json.decode(letter.record)["id"]).first()
        if record is None or record.status in _FINISHED:
            return
        path = f"{TaskFailed.__module__}.{TaskFailed.__qualname__}"
        record.errors = [*record.errors, {"exception_class_path": path, "traceback": letter.reason}]
        record.status, record.finished_at = TaskResultStatus.FAILED, timezone.now()
        record.save(using=self._database)

    @property
    def _records(self) -> Any:
        return TaskRecord.objects.using(self._database)


def _value_of(result: TaskResult) -> Any:
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    return normalize_json(result.task.call(*context, *result.args, **result.kwargs))


def _tell_finished(result: TaskResult) -> None:
    task_finished.send(type(result.task.get_backend()), task_result=result)
