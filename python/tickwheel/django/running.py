"""Runs a task whose time has come, and keeps what became of it.

- A task that fails is tried again as the worker's `--max-attempts` says; its status is READY between two attempts, and
  FAILED after the last one. The errors in its record are counted.
- If the worker is killed while a task runs, the task runs again. That is no failure. It happens `CRASHES` times at
  most, because the task may be the reason. A task that has finished does not run again.
- A task that takes too long is cut off and has failed. It is not tried again beside its own thread. If the thread ends
  later, its outcome replaces the failure.
- A database that is down costs no attempt: all tasks wait. A long task does not show that it is back, and a few tasks
  do not show the queue that it is down. The worker asks by `SELECT 1`. After an answer it puts a message without a task
  into the queue, which is delivered immediately, and tries the tasks again that found the database down.
- A worker that stops begins no task. One that would begin is held until the queue is closed, and has no mark: the
  queue delivers it to the next worker.
- A connection that died while it was idle costs nothing: it is looked at before each task.
- A time zone or a language that a task activates, and a transaction that it leaves open, end with the task. Its thread
  runs others.
- The record decides all this, so it holds over restarts. The queue may deliver a task as often as that takes.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from traceback import format_exception
from typing import Any, Final

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connections,
)
from django.utils import timezone
from django.utils.crypto import get_random_string

from tickwheel._printable import logger_of
from tickwheel.delivery import Delivery, Unanswered, Unavailable
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

_WRITTEN: Final = (
    "status",
    "started_at",
    "last_attempted_at",
    "finished_at",
    "return_value",
    "errors",
    "worker_ids",
)
"""The fields of a record that a run changes."""

_LONGEST_TEXT: Final = 1 << 20  # of an error

_FINISHED: Final = (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)

logger: Final = logger_of("tickwheel.django")

PROBE: Final = "the database answers"
"""The id of a message without a task. The ids of tasks have no spaces."""

MOST_HELD_UP: Final = 100
"""So many messages are tried at once when the database is back. Of more, the queue itself finds that all are down."""

CRASHES: Final = 4
"""How often a task runs again because the worker ended in the middle."""


class TaskFailed(Exception):
    """An attempt has failed, as the result tells, and there is another one."""


class WorkerCrashed(Exception):
    """The worker ended in the middle of a task, too often."""


class Runner:
    """Runs the tasks of a database, each until it has failed `max_attempts` times. To be called from any thread."""

    def __init__(self, database: str, max_attempts: int, task_timeout_s: float = 0.0) -> None:
        self.database = database
        """Its alias."""
        self.task_timeout_s = task_timeout_s
        """A task that is delivered again while it runs has failed once it has run for as long."""
        self._max_attempts = max_attempts
        self._worker_id = f"{socket.gethostname()}-{os.getpid()}-{get_random_string(8)}"  # of this process alone
        self._in_progress: dict[str, float | None] = {}  # and when each began; `None` until its start is written
        self._cut_off: set[str] = set()  # of those in progress
        self._is_stopping = False
        self._changed = threading.Condition()  # guards what begins and ends
        self._is_over = threading.Event()
        self._held_up: set[str] = set()  # the messages that found the database down
        self._is_down = False  # as a probe has found since then

    @property
    def is_running(self) -> bool:
        """Whether a task runs, also one that was cut off."""
        return bool(self._in_progress)

    def stop(self) -> None:
        """Begin no task from now on. What is due meanwhile is held, until `let_go`."""
        with self._changed:
            self._is_stopping = True

    def wait_until_idle(self, at_most_s: float) -> None:
        """Wait for the tasks that run, but not for those that were cut off."""
        with self._changed:
            self._changed.wait_for(lambda: self._in_progress.keys() <= self._cut_off, at_most_s)

    def let_go(self) -> None:
        """The queue is closed, and sends nothing more."""
        self._is_over.set()

    def run(self, delivery: Delivery) -> None:
        """Run the task of a delivery. Errors: those of `run_task`."""
        message_id = delivery.message.id
        try:
            if message_id == PROBE:
                self._with_database(self._probe)
            else:
                self.run_task(message_id)
        except Unavailable:
            with self._changed:
                if len(self._held_up) < MOST_HELD_UP:
                    self._held_up.add(message_id)
            raise

    def cut_off(self) -> None:
        """Tasks that run for too long have failed. A further delivery of one finds that too, but it needs a place."""
        with self._changed:
            late = [record_id for record_id in self._in_progress if self._is_late(record_id)]

        def note() -> None:
            for record in self._records.filter(id__in=late).exclude(status__in=_FINISHED):
                self._cut(record)

        try:
            if late:
                self._with_database(note)
        except Unavailable:
            return  # asked again in a second
        except Exception:  # in the thread of the command, which an error would end
            logger.exception("it could not be noted that tasks take too long")

    def finds_database_back(self) -> bool:
        """Whether it was down for a task, and answers now. Returns true until `take_held_up`."""
        if not self._held_up:
            return False
        try:
            self._with_database(self._probe)
        except Unavailable:
            self._is_down = True
            return False
        return True

    def take_held_up(self) -> list[str]:
        """The messages that found it down, to be tried now; none if no probe did. Then what failed may be a task that
        has run, and whose result can't be written. Its waits get longer, so it does not run each second.
        """
        with self._changed:
            held_up, self._held_up = self._held_up, set()
        is_back, self._is_down = self._is_down, False
        return [*held_up] if is_back else []

    def run_task(self, record_id: str) -> None:
        """Run a task. Errors: `TaskFailed`; `Unavailable` if the database is down."""
        self._with_database(lambda: self._run(record_id))

    def _with_database(self, work: Callable[[], None]) -> None:
        close_old_connections()
        try:
            _close_dead_connections()
            work()
        except (OperationalError, InterfaceError) as error:
            raise Unavailable(f"the database of tasks: {error}") from error
        finally:
            close_old_connections()

    def _probe(self) -> None:
        with connections[self.database].cursor() as cursor:
            cursor.execute("SELECT 1")

    def _run(self, record_id: str) -> None:
        record = self._records.filter(id=record_id).first()
        if record is None:
            logger.warning("the task %s is not in the database any more, and is not run", record_id)
            return
        if record.status in _FINISHED:
            logger.info("the task %s has finished before, and is not run again", record_id)
            return
        if record_id in self._in_progress:
            if self._cut(record):
                return
            if record_id in self._in_progress:  # its start waited for the database, and was cut off
                raise Unanswered("it has not run for its time yet")
            self._run(record_id)  # it has ended since the record was read
            return
        if len({*record.worker_ids} - {self._worker_id}) - len(record.errors) > CRASHES:  # a worker crashes once
            self._note_end(record, WorkerCrashed(f"its worker ended in the middle of it, {CRASHES + 1} times"))
            return
        if not self._begins(record_id):
            raise Unavailable("the worker stops")
        try:
            if not self._note_start(record):
                logger.warning("the task %s was deleted or has ended just before its start, and is not run", record_id)
                return
            if self._calls(record_id):
                self._call(record)
                return
            self._take_back(record)
        finally:
            with self._changed:
                self._in_progress.pop(record_id, None)
                self._cut_off.discard(record_id)
                self._changed.notify_all()
        self._is_over.wait()
        raise Unavailable("the worker stops")

    def _is_late(self, record_id: str) -> bool:
        began_s = self._in_progress.get(record_id)
        return began_s is not None and time.monotonic() - began_s >= self.task_timeout_s

    def _cut(self, record: TaskRecord) -> bool:
        """Whether it has run for too long, and has failed now."""
        with self._changed:
            if not self._is_late(record.id):
                return False
            self._cut_off.add(record.id)
            self._changed.notify_all()
        self._note_end(record, TimeoutError("it took too long, and its thread is left alone"))
        return True

    def _begins(self, record_id: str) -> bool:
        """Whether the task begins. While the worker stops it does not, and keeps its place: others would follow."""
        with self._changed:
            if record_id in self._in_progress:
                raise Unanswered("another call of it has just begun")
            if not self._is_stopping:
                self._in_progress[record_id] = None
                return True
        self._is_over.wait()
        return False

    def _calls(self, record_id: str) -> bool:
        """Whether the task is called, now that its start is written. While that waited, the worker may have stopped."""
        with self._changed:
            if not self._is_stopping:
                self._in_progress[record_id] = time.monotonic()
            return not self._is_stopping

    def _call(self, record: TaskRecord) -> None:
        try:
            result = result_of(record)
            task_started.send(type(result.task.get_backend()), task_result=result)
            with self._own_connections():
                record.return_value = copy_context().run(_value_of, result)
        except BaseException as error:
            self._fail(record, error)
        else:
            self._succeed(record)

    @contextmanager
    def _own_connections(self) -> Iterator[None]:
        """What a task leaves open, or what becomes of an idle connection meanwhile, does not touch its result.

        In a test the task may run in the transaction of the test, which stays as it is.
        """
        outer = {
            connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block
        }
        if self.database not in outer:
            connections[self.database].close()
        try:
            yield
        finally:
            for connection in connections.all(initialized_only=True):
                is_left = connection.in_atomic_block or connection.alias == self.database
                if is_left and connection.alias not in outer:
                    connection.close()
                    del connections[connection.alias]  # it may think that it is in a transaction

    def _note_start(self, record: TaskRecord) -> bool:
        """Whether it may run: a call of it that was cut off may have ended since the record was read."""
        record.status, record.last_attempted_at = TaskResultStatus.RUNNING, timezone.now()
        record.started_at = record.started_at or record.last_attempted_at
        record.worker_ids = [*record.worker_ids, self._worker_id]
        return self._write_unfinished(record)

    def _take_back(self, record: TaskRecord) -> None:
        """The start that was written: the task was not called."""
        record.status, record.worker_ids = TaskResultStatus.READY, record.worker_ids[:-1]
        self._write_unfinished(record)

    def _write_unfinished(self, record: TaskRecord) -> bool:
        """As `_write`, unless the task has finished."""
        return bool(self._records.filter(id=record.id).exclude(status__in=_FINISHED).update(**_written(record)))

    def _write(self, record: TaskRecord) -> bool:
        """Write what has changed. Returns whether the record is there: one that was deleted stays so."""
        return bool(self._records.filter(id=record.id).update(**_written(record)))

    def _succeed(self, record: TaskRecord) -> None:
        record.status, record.finished_at = TaskResultStatus.SUCCESSFUL, timezone.now()
        try:
            self._write(record)
        except (DatabaseError, ValueError) as error:
            if not _can_not_be_held(error):
                raise
            record.return_value = None
            self._fail(record, error)
        else:
            _tell_finished(record)

    def _fail(self, record: TaskRecord, error: BaseException) -> None:
        """In the handler of the error, which Django's log shows."""
        record.errors = [*record.errors, _failure_of(error)]
        if len(record.errors) < self._max_attempts and record.id not in self._cut_off:
            record.status, record.finished_at = TaskResultStatus.READY, None
            if self._write_unfinished(record):
                raise TaskFailed(f"{type(error).__name__}: {error}") from error
            # It was cut off meanwhile: its message may be gone, and nothing would run it again.
        record.status, record.finished_at = TaskResultStatus.FAILED, timezone.now()
        self._write(record)
        _tell_finished(record)

    def _note_end(self, record: TaskRecord, error: Exception) -> None:
        """The task has failed for good, unless its own thread has written how it ended."""
        record.errors = [*record.errors, _failure_of(error)]
        record.status, record.finished_at = TaskResultStatus.FAILED, timezone.now()
        fields = {"errors": record.errors, "status": record.status, "finished_at": record.finished_at}
        if self._records.filter(id=record.id).exclude(status__in=_FINISHED).update(**fields):
            try:
                raise error  # Django's log shows what is handled
            except type(error):
                _tell_finished(record)

    @property
    def _records(self) -> Any:
        return TaskRecord.objects.using(self.database)


def _written(record: TaskRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _WRITTEN}


def _close_dead_connections() -> None:
    """Of any database: Django itself looks only with `CONN_HEALTH_CHECKS`, or once an error has shown it."""
    for connection in connections.all(initialized_only=True):
        is_kept = connection.connection is not None and not connection.in_atomic_block  # by `CONN_MAX_AGE`
        if is_kept and not connection.is_usable():
            connection.close()


def _can_not_be_held(error: Exception) -> bool:
    """Whether the database can't hold the value. A limit of PostgreSQL, of SQLSTATE 54, is an `OperationalError`."""
    state = getattr(error.__cause__, "sqlstate", None) or ""
    return isinstance(error, DataError | IntegrityError | ValueError) or state.startswith("54")


def _value_of(result: TaskResult) -> Any:
    process = os.getpid()
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    try:
        return normalize_json(result.task.call(*context, *result.args, **result.kwargs))
    finally:
        if os.getpid() != process:
            os._exit(0)  # the task forked: its result is the parent's to write


def _failure_of(error: BaseException) -> dict[str, str]:
    kind = type(error)
    try:
        text = "".join(format_exception(error)).encode(errors="backslashreplace").decode()
    except Exception:  # a property of the exception may fail
        text = f"{kind.__qualname__}, whose traceback can't be written"
    text = text.replace("\0", "\\0")  # which PostgreSQL can't hold
    if len(text) > _LONGEST_TEXT:
        text = f"{text[: _LONGEST_TEXT // 2 - 5]}\n...\n{text[-_LONGEST_TEXT // 2 :]}"
    return {"exception_class_path": f"{kind.__module__}.{kind.__qualname__}", "traceback": text}


def _tell_finished(record: TaskRecord) -> None:
    try:
        result = result_of(record)
    except Exception as error:  # its function, backend or queue is gone, and there is no task to tell of
        what = f"the task {record.id} of {record.path} is {record.status}, and task_finished is not sent"
        logger.warning("%s: %s: %s", what, type(error).__name__, error)
        return
    task_finished.send_robust(type(result.task.get_backend()), task_result=result)  # it logs what a receiver raises
