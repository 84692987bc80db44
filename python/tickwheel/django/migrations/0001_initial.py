"""The tables of results and of the outbox."""

from typing import Any, ClassVar

from django.db import migrations, models

from tickwheel.delivery.outbox import create_table
from tickwheel.django.database import TABLE, VENDORS


def make_outbox(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001, as Django calls it
    """On a database that can have none, nothing is made: another one has the tasks."""
    if schema_editor.connection.vendor in VENDORS:
        create_table(schema_editor.connection, TABLE)


def drop_outbox(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001, as Django calls it
    """The other way."""
    if schema_editor.connection.vendor in VENDORS:
        schema_editor.execute(f"DROP TABLE {TABLE}")


class Migration(migrations.Migration):
    """The first."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="TaskRecord",
            fields=[
                ("id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("path", models.TextField()),
                ("backend", models.TextField()),
                ("queue_name", models.TextField()),
                ("priority", models.SmallIntegerField()),
                ("takes_context", models.BooleanField()),
                ("run_after", models.DateTimeField(null=True)),
                ("args", models.JSONField()),
                ("kwargs", models.JSONField()),
                ("status", models.CharField(max_length=16)),
                ("enqueued_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("last_attempted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(db_index=True, null=True)),
                ("return_value", models.JSONField(null=True)),
                ("errors", models.JSONField(default=list)),
                ("worker_ids", models.JSONField(default=list)),
            ],
            options={"ordering": ["-enqueued_at"]},
        ),
        migrations.RunPython(make_outbox, drop_outbox),
    ]
