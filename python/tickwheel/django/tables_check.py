"""The check of `manage.py check --database ALIAS`: a database of tasks other than "default" is migrated by itself."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections

from tickwheel.django.backend import databases_of_tasks
from tickwheel.django.database import TABLE


@checks.register(checks.Tags.database)  # type: ignore[untyped-decorator]
def check_tables(*, databases: Sequence[str] | None = None, **_: Any) -> Iterator[checks.CheckMessage]:
    """Only of the databases that the command names, as Django has it."""
    for alias in sorted(databases_of_tasks() & {*(databases or ())} - {DEFAULT_DB_ALIAS}):
        if TABLE not in connections[alias].introspection.table_names():
            hint = f"Run manage.py migrate --database {alias}."
            text = f"The database {alias!r} has no tables for tasks."
            yield checks.Warning(text, hint=hint, id="tickwheel.W001")
