"""The tables of the app: the results of tasks, and the outbox."""

from typing import ClassVar

from django.db import models

from tickwheel.django.database import TABLE


class TaskRecord(models.Model):
    """A task that was enqueued, and its result.

    It is written with the row of the outbox, so both are there or none. It stays until `tickwheel_prune` deletes it.
    """

    id = models.CharField(primary_key=True, max_length=64)
    path = models.TextField()
    """Of the function: `module.name`."""
    backend = models.TextField()
    queue_name = models.TextField()
    priority = models.SmallIntegerField()
    takes_context = models.BooleanField()
    run_after = models.DateTimeField(null=True)
    args = models.JSONField()
    kwargs = models.JSONField()
    status = models.CharField(max_length=16)
    enqueued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True, db_index=True)
    return_value = models.JSONField(null=True)
    errors = models.JSONField(default=list)
    """Of each failed attempt, the path of the exception's class and the traceback."""
    worker_ids = models.JSONField(default=list)
    """Of each attempt, the worker."""

    class Meta:
        """Its table is `tickwheel_taskrecord`."""

        app_label = "tickwheel"
        ordering: ClassVar = ["-enqueued_at"]

    def __str__(self) -> str:
        return f"{self.path} {self.id}: {self.status}"


class OutboxRow(models.Model):
    """A row of the outbox, which the worker reads and deletes. A model, so Django empties its table with the others."""

    n = models.BigAutoField(primary_key=True)
    written_ms = models.BigIntegerField()
    record = models.TextField()

    class Meta:
        """Its table."""

        app_label = "tickwheel"
        db_table = TABLE

    def __str__(self) -> str:
        return f"row {self.n} of {TABLE}"
