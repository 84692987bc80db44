"""The option `--database` of the commands. Without it, they take the database that the backends of `TASKS` name."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from tickwheel.django.backend import databases_of_tasks


def add_database(parser: ArgumentParser) -> None:
    """The option."""
    text = "The alias of the database with the tasks; default: the one that TASKS names."
    parser.add_argument("--database", choices=tuple(connections), help=text)


def database_from(options: Mapping[str, Any]) -> str:
    """The alias. Errors: `CommandError` if it was not given, and there are several."""
    if given := options["database"]:
        return str(given)
    named = databases_of_tasks()
    if len(named) > 1:
        raise CommandError(
            f"TASKS has backends with these databases: {', '.join(sorted(named))}: name one by --database"
        )
    return named.pop() if named else "default"
