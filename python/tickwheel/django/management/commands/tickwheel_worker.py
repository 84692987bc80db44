"""`manage.py tickwheel_worker`: runs tasks at their times, until a signal comes."""

import signal
import threading
from argparse import ArgumentParser
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from tickwheel.delivery import DeliveryFailed, DeliveryQueue, WrongUsage
from tickwheel.django.database import outbox_of
from tickwheel.django.running import CRASHES, Runner

_LOOK_EVERY_S: Final = 1.0


class Command(BaseCommand):
    """Waits for the tasks of one database. A second worker with the same store waits for the end of the first."""

    help = "Run the tasks that were enqueued with tickwheel, each at its time, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        add = parser.add_argument
        add("--store", default="tickwheel-tasks.db", help="The file that keeps what waits; default: %(default)s.")
        add("--database", default="default", help="The alias of the database with the tasks; default: %(default)s.")
        add("--concurrency", type=int, default=8, help="How many tasks run at a time; default: %(default)s.")
        add("--max-attempts", type=int, default=1, help="How often a task that fails is tried; default: %(default)s.")
        late = "A task that takes longer counts as failed, though its thread goes on; default: %(default)s."
        add("--task-timeout", type=float, default=3600.0, metavar="SECONDS", help=late)

    def handle(self, *_: Any, **options: Any) -> None:
        """Run until a signal."""
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        if options["max_attempts"] < 1:
            raise CommandError(f"--max-attempts is {options['max_attempts']}: give 1 or more")
        runner = Runner(options["database"], options["max_attempts"])
        try:
            queue = DeliveryQueue(
                options["store"],
                to=runner.run,
                outbox=outbox_of(connections[options["database"]]),
                concurrency=options["concurrency"],
                max_attempts=options["max_attempts"] + CRASHES,
                sink_timeout_s=options["task_timeout"],
                on_dead_letter=runner.give_up,
            )
        except (WrongUsage, ImproperlyConfigured, DeliveryFailed) as error:
            raise CommandError(str(error)) from error
        self.stderr.write(f"running tasks; {options['store']} keeps what waits")
        try:
            with queue:
                while not stop.wait(_LOOK_EVERY_S):
                    queue.wait_until_empty(0)  # raises if delivery has failed
                self.stderr.write("stopping: tasks that run may end within 30 s")
        except DeliveryFailed as error:
            raise CommandError(str(error)) from error
