"""The backend, for the setting `TASKS`: a task is there exactly if the transaction commits in which it was enqueued."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from django.apps import apps
from django.core import checks
from django.db import connections, transaction
from django.utils import timezone
from django.utils.crypto import get_random_string

from tickwheel.delivery.outbox import enqueue
from tickwheel.django.api import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_enqueued,
)
from tickwheel.django.database import INSTALL, TABLE, VENDORS, driver_fault, mark_of, pool_size_of

_NAME: Final = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,100}")  # of a tenant


class TickwheelBackend(BaseTaskBackend):
    """Its `OPTIONS` may have `database`, an alias of `DATABASES`; by default "default".

    There are no priorities: tasks run in the order of their times. All queues are run by one worker, in which they take
    turns (D24).
    """

    supports_defer: ClassVar = True
    supports_async_task: ClassVar = True
    supports_get_result: ClassVar = True
    supports_priority: ClassVar = False

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.database = self.options.get("database", "default")
        """The alias of the database that has the tasks."""

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Write the task into the database, in the caller's transaction if there is one.

        Errors: `InvalidTask`; `TypeError` for arguments that JSON can't hold; those of the database.
        """
        from tickwheel.django.models import TaskRecord
        from tickwheel.django.results import result_of

        self.validate_task(task)
        record = TaskRecord(
            id=get_random_string(32),
            path=task.module_path,
            backend=self.alias,
            queue_name=task.queue_name,
            priority=task.priority,
            takes_context=task.takes_context,
            run_after=task.run_after,
            args=normalize_json(args),
            kwargs=normalize_json(kwargs),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
        )
        due = task.run_after or datetime.now(UTC)
        if timezone.is_naive(due):  # without USE_TZ; such times are in the zone of the settings, whichever is active
            due = timezone.make_aware(due, timezone.get_default_timezone())
        with transaction.atomic(using=self.database):
            record.save(using=self.database, force_insert=True)
            enqueue(
                connections[self.database],
                {"id": record.id, "due": due, "payload": mark_of(self.database), "tenant": _tenant_of(task)},
                table=TABLE,
            )
        result = result_of(record)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """The result as it is now. Errors: `TaskResultDoesNotExist`; `ImportError` if its function is gone."""
        from tickwheel.django.models import TaskRecord
        from tickwheel.django.results import result_of

        try:
            record = TaskRecord.objects.using(self.database).get(id=result_id)
        except TaskRecord.DoesNotExist as error:
            raise TaskResultDoesNotExist(result_id) from error
        return result_of(record)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """The faults of the settings."""
        found = [*super().check(**kwargs)]
        if not apps.is_installed("tickwheel.django"):
            hint = "Add 'tickwheel.django' to INSTALLED_APPS, and run manage.py migrate."
            found.append(checks.Error(f"The backend {self.alias!r} needs its app.", hint=hint, id="tickwheel.E001"))
        for name in sorted(self.options.keys() - {"database"}):
            hint = "Remove it. OPTIONS may have 'database': an alias of DATABASES."
            text = f"The backend {self.alias!r} has no option {name!r}."
            found.append(checks.Error(text, hint=hint, id="tickwheel.E005"))
        if self.database not in connections:
            hint = "OPTIONS may have 'database': an alias of DATABASES."
            found.append(checks.Error(f"There is no database {self.database!r}.", hint=hint, id="tickwheel.E002"))
        elif connections[self.database].vendor not in VENDORS:
            hint = f"Name one that is {' or '.join(VENDORS)} by OPTIONS: 'database'."
            text = f"Tasks can't be in the database {self.database!r}."
            found.append(checks.Error(text, hint=hint, id="tickwheel.E003"))
        elif (
            pool_size_of(connections[self.database])
            and not connections[self.database].settings_dict["CONN_HEALTH_CHECKS"]
        ):
            text = f"The pool of the database {self.database!r} gives connections to tasks that the server has closed."
            hint = "Set CONN_HEALTH_CHECKS to True for this database."
            found.append(checks.Error(text, hint=hint, id="tickwheel.E004"))
        elif fault := driver_fault(connections[self.database]):
            hint = f"For the worker {INSTALL}."
            found.append(checks.Warning(f"{fault[0].upper()}{fault[1:]}.", hint=hint, id="tickwheel.W002"))
        return found


def _tenant_of(task: Task) -> str | None:
    """Its queue. A queue with a name that no tenant can have counts as the default one."""
    name = task.queue_name
    return name if name != "default" and _NAME.fullmatch(name) else None


def databases_of_tasks() -> set[str]:
    """The aliases that the backends of `TASKS` name."""
    return {str(backend.database) for backend in task_backends.all() if isinstance(backend, TickwheelBackend)}
