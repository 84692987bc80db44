"""Tasks of the site."""

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

from django.db import connection, connections, transaction
from django.utils import timezone, translation

from tickwheel.django.models import TaskRecord

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def add(one: int, other: int) -> int:
    return one + other


@task
async def add_later(one: int, other: int) -> int:
    return one + other


@task(takes_context=True)
def attempt(context: Any, until: int = 1) -> int:
    if context.attempt < until:
        raise RuntimeError(f"attempt {context.attempt}")
    return int(context.attempt)


@task
def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text} {time.time()}\n")


@task
def note_slowly(path: str, text: str) -> None:
    note.func(path, text)
    time.sleep(0.05)


@task(takes_context=True)
def note_attempt(context: Any, path: str, name: str, takes_s: float) -> None:
    with Path(path).open("a") as file:
        file.write(f"{name} {context.attempt}\n")
    time.sleep(takes_s)


begun, may_end = threading.Event(), threading.Event()


@task
def hang() -> str:
    begun.set()
    assert may_end.wait(30)
    return "after all"


@task
async def never_end() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@task
def leave_open(database: str = "default") -> None:
    transaction.set_autocommit(False, using=database)
    transaction.atomic(using=database).__enter__()
    if database != "default":
        connections[database].cursor().execute("CREATE TABLE left_open (n)")


@task
def activate(zone: str, language: str) -> None:
    timezone.activate(zone)
    translation.activate(language)


@task
def look_at_connection() -> bool:
    return connection.connection is not None


@task
def ask(database: str) -> int:
    with connections[database].cursor() as cursor:
        return int(cursor.execute("SELECT 1").fetchone()[0])


@task
def unwritable(what: str) -> Any:
    return {"object": object(), "nul": "\0", "nan": float("nan")}[what]


@task
def leave() -> None:
    raise SystemExit(3)


@task
def fail_oddly() -> None:
    raise RuntimeError("odd \ud800 and \0")


@task
def fork() -> int:
    child = os.fork()
    if child == 0:
        raise SystemExit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@task(takes_context=True)
def delete_own_record(context: Any) -> None:
    TaskRecord.objects.filter(id=context.task_result.id).delete()


def plain(one: int) -> int:
    return one


renamed = task(plain)
