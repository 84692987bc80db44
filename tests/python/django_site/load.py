"""A program of the site under load: enqueues twenty tasks a second until its input ends, while the database restarts.

It prints as JSON the names of the tasks whose transactions were committed, and of those that were rolled back.
"""

import contextlib
import json
import random
import sys
import threading
from datetime import timedelta

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import InterfaceError, OperationalError, close_old_connections, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402

from django_site import tasks  # noqa: E402

EVERY_S = 0.05


def main(path: str) -> None:
    call_command("migrate", verbosity=0)
    print("migrated", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    committed: list[str] = []
    rolled_back: list[str] = []
    number = 0
    while not ended.wait(EVERY_S):
        number += 1
        close_old_connections()
        is_kept = number % 10 != 0
        with contextlib.suppress(OperationalError, InterfaceError):  # nothing is known of it then
            enqueue(path, str(number), is_kept=is_kept)
            (committed if is_kept else rolled_back).append(str(number))
    print(json.dumps([committed, rolled_back]))


def enqueue(path: str, name: str, *, is_kept: bool) -> None:
    """One task in three is for later, and one in three takes a while."""
    after = timezone.now() + timedelta(seconds=random.uniform(0.1, 3.0)) if random.randrange(3) == 0 else None
    takes_s = random.uniform(0.0, 0.5) if random.randrange(3) == 0 else 0.0
    with transaction.atomic():
        tasks.note_attempt.using(run_after=after).enqueue(path, name, takes_s)
        transaction.set_rollback(not is_kept)


main(*sys.argv[1:])
