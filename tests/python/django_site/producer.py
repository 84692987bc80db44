"""A program of the site: enqueues tasks, and prints their results as JSON once all have finished."""

import json
import sys
import time
from datetime import timedelta
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402
from django.utils import timezone  # noqa: E402

from django_site import tasks  # noqa: E402


def main(what: str, path: str) -> None:
    call_command("migrate", verbosity=0)
    results = {"each": each, "many": many, "failing": failing, "hanging": hanging}[what](path)
    print("enqueued", flush=True)
    until_s = time.monotonic() + 150
    while not all(result.is_finished for result in results):
        assert time.monotonic() < until_s, [result.status for result in results]
        time.sleep(0.05)
        for result in results:
            if not result.is_finished:
                result.refresh()
    print(json.dumps([[result.status, result.attempts] for result in results]))


def each(path: str) -> list[Any]:
    later = timezone.now() + timedelta(seconds=1)
    with transaction.atomic():
        results = [tasks.add.enqueue(1, 2), tasks.add_later.using(queue_name="mail").enqueue(1, 2)]
        results.append(tasks.note.using(run_after=later).enqueue(path, str(later.timestamp())))
    with transaction.atomic():
        tasks.note.enqueue(path, "rolled back")
        transaction.set_rollback(True)
    return results


def many(path: str) -> list[Any]:
    return [tasks.note_slowly.enqueue(path, str(number)) for number in range(300)]  # two seconds of work


def failing(path: str) -> list[Any]:
    return [tasks.attempt.enqueue(until=2), tasks.attempt.enqueue(until=9)]


def hanging(_path: str) -> list[Any]:
    return [tasks.never_end.enqueue()]


main(*sys.argv[1:])
