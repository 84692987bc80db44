"""The database of tasks: its outbox, with the address for the worker, and the mark of a task that tells whose it is."""

import os
import re
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

TABLE: Final = "tickwheel_task_outbox"

VENDORS: Final = ("postgresql", "sqlite")

INSTALL: Final = "run pip install 'tickwheel[postgresql]'"

_OF_LIBPQ: Final = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}


def outbox_of(connection: Any) -> str:
    """The address of the outbox, with the password, if the settings have one. Errors: `ImproperlyConfigured`."""
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        name = str(settings["NAME"])
        if connection.is_in_memory_db():
            raise ImproperlyConfigured(f"the database {name} is in memory, where no worker can read: name a file")
        return f"sqlite:{name}?table={TABLE}"
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(f"the database is {connection.vendor}: tasks may be in {' or '.join(VENDORS)}")
    if fault := driver_fault(connection):
        raise ImproperlyConfigured(f"{fault}: {INSTALL}")
    from psycopg.pq import Conninfo

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    options = {name: value for name, value in settings.get("OPTIONS", {}).items() if name in known}
    options |= {of_libpq: settings[name] for name, of_libpq in _OF_LIBPQ.items() if settings.get(name)}
    if role := settings.get("OPTIONS", {}).get("assume_role"):
        given = options.get("options", os.environ.get("PGOPTIONS", ""))
        role = re.sub(r"([\s\\])", r"\\\1", role)  # as libpq separates options at spaces
        options["options"] = f"{given} -c role={role}".lstrip()
    return f"postgresql://?{urlencode({**options, 'table': TABLE}, quote_via=quote, safe='')}"


def driver_fault(connection: Any) -> str | None:
    """Why the worker can't read the database, if psycopg 3 is missing: Django itself also takes psycopg2."""
    if connection.vendor == "postgresql":
        try:
            import psycopg  # noqa: F401, whether it can be imported
        except ImportError as error:
            return f"psycopg 3 can't be imported ({error})"
    return None


def pool_size_of(connection: Any) -> int | None:
    """The most connections of the pool of a database; `None` without a pool."""
    pool = connection.settings_dict.get("OPTIONS", {}).get("pool")
    given = pool if isinstance(pool, dict) else {}
    return (given.get("max_size") or given.get("min_size", 4)) if pool else None  # as psycopg_pool does it


def mark_of(alias: str) -> dict[str, str]:
    """The payload of a task's message: a worker's store must not get the tasks of two databases."""
    return {"database": alias}


def database_of(payload: msgspec.Raw) -> str | None:
    """The alias in the payload of a message; `None` if it is no task, or one without a mark."""
    try:
        return msgspec.json.decode(payload, type=_Mark).database
    except msgspec.DecodeError:
        return None


class _Mark(msgspec.Struct):
    database: str | None = None


def is_same(alias: str, other: str) -> bool:
    """Whether two aliases are of one database, as if one of them goes through a pooler."""
    if alias == other:
        return True
    return alias in connections and _place_of(alias) == _place_of(other)


def _place_of(alias: str) -> tuple[str, str, str]:
    connection = connections[alias]
    settings = connection.settings_dict
    return connection.vendor, str(settings["NAME"]), str(settings.get("OPTIONS", {}).get("service", ""))
