"""A `TaskResult`, as Django knows it, from a record of the database."""

from typing import Any

from django.utils.module_loading import import_string

from tickwheel.django.api import Task, TaskError, TaskResult, TaskResultStatus
from tickwheel.django.models import TaskRecord


def result_of(record: TaskRecord) -> TaskResult:
    """Errors: `ImportError` if the function is not there any more."""
    result = TaskResult(
        task=_task_of(record),
        id=record.id,
        status=TaskResultStatus(record.status),
        enqueued_at=record.enqueued_at,
        started_at=record.started_at,
        last_attempted_at=record.last_attempted_at,
        finished_at=record.finished_at,
        args=record.args,
        kwargs=record.kwargs,
        backend=record.backend,
        errors=[TaskError(**error) for error in record.errors],
        worker_ids=[*record.worker_ids],
    )
    object.__setattr__(result, "_return_value", record.return_value)
    return result


def _task_of(record: TaskRecord) -> Any:
    found = import_string(record.path)
    how = {
        "priority": record.priority,
        "queue_name": record.queue_name,
        "run_after": record.run_after,
        "backend": record.backend,
    }
    if isinstance(found, Task):
        return found.using(**how)
    return Task(func=found, takes_context=record.takes_context, **how)  # the task has another name than its function
