"""`manage.py tickwheel_worker`: runs tasks at their times, until a signal comes."""

import logging
import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from tickwheel._stopping import Stopped, stop_noted, stopped_by_signals
from tickwheel.delivery import DeliveryFailed, WrongUsage
from tickwheel.delivery.sinks.webhook import read_value
from tickwheel.django.database import pool_size_of
from tickwheel.django.management.database_option import add_database, database_from
from tickwheel.django.queue import TaskQueue
from tickwheel.django.running import PROBE, Runner

_LOOK_EVERY_S: Final = 1.0
_LEAST_TIMEOUT_S: Final = 0.001
_MOST_TIMEOUT_S: Final = 86_400
_STORE: Final = "tickwheel-tasks.db"


class Command(BaseCommand):
    """Waits for the tasks of one database. A second worker with the same store waits for the end of the first."""

    help = "Run the tasks that were enqueued with tickwheel, each at its time, until SIGTERM or Ctrl-C."

    _runner: Runner | None = None

    def run_from_argv(self, argv: list[str]) -> None:
        """The command as a process. It also ends if a task hangs: Python would wait for the thread of a coroutine."""
        try:
            super().run_from_argv(argv)
        finally:
            if self._runner is not None and self._runner.is_running:
                code = 1 if sys.exception() else 0
                logging.shutdown()
                sys.stdout.flush()
                os._exit(code)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        add = parser.add_argument
        store = f"The file that keeps what waits; default: {_STORE}, and tickwheel-tasks-ALIAS.db for another database."
        add("--store", help=store)
        add_database(parser)
        add("--concurrency", type=int, default=8, help="How many tasks run at a time; default: %(default)s.")
        add("--tenant-concurrency", type=int, help="How many tasks of one queue run at a time, but for 'default'.")
        add("--tenant-rate", metavar="N/s", help="How many tasks of one queue begin in a second, but for 'default'.")
        add("--max-attempts", type=int, default=1, help="How often a task that fails is tried; default: %(default)s.")
        to = "Keep what waits in this PostgreSQL too, as tickwheel serve does; may be env:VARIABLE or file:PATH."
        add("--replicate-to", metavar="ADDRESS", help=to)
        late = "A task that takes longer counts as failed, though its thread goes on; default: %(default)s."
        add("--task-timeout", type=float, default=3600.0, metavar="SECONDS", help=late)

    def handle(self, *_: Any, **options: Any) -> None:
        """Run until a signal. A second one ends it immediately."""
        if options["max_attempts"] < 1:
            raise CommandError(f"--max-attempts is {options['max_attempts']}: give 1 or more")
        if not _LEAST_TIMEOUT_S <= options["task_timeout"] <= _MOST_TIMEOUT_S:
            allowed = f"it may be {_LEAST_TIMEOUT_S:g} to {_MOST_TIMEOUT_S:,}"
            raise CommandError(f"--task-timeout is {options['task_timeout']:g}: {allowed}")
        database = options["database"] = database_from(options)
        most, needed = pool_size_of(connections[database]), options["concurrency"] + 1
        if most is not None and most < needed:  # one more looks whether a database that was down is back
            has = f"the pool of the database {database!r} has at most {most} connections"
            raise CommandError(f"{has}: give it a 'max_size' of {needed} or more, or a lower --concurrency")
        try:
            if most is not None:
                _ = connections[database].pool  # made, and not opened: the database may be down
            with stopped_by_signals():
                self._work(options)
        except (WrongUsage, ImproperlyConfigured, DeliveryFailed) as error:
            raise CommandError(str(error)) from error
        except Stopped:
            self.stderr.write("stopped before it ran any task")

    def _work(self, options: Mapping[str, Any]) -> None:
        database = options["database"]
        store = options["store"] or (_STORE if database == DEFAULT_DB_ALIAS else f"tickwheel-tasks-{database}.db")
        self.stderr.write(f"opening {store}, and waiting if another worker has it")
        runner = self._runner = Runner(database, options["max_attempts"], options["task_timeout"])
        limits = {name: options[name] for name in ("concurrency", "tenant_concurrency", "tenant_rate")}
        to = options["replicate_to"] and read_value("--replicate-to", options["replicate_to"])
        with TaskQueue(store, runner, **limits, replicate_to=to) as queue:
            try:
                self.stderr.write(f"running tasks; {store} keeps what waits")
                while True:
                    with stop_noted() as stop:
                        stop.wait(_LOOK_EVERY_S)
                        queue.wait_until_empty(0)  # raises if delivery has failed
                    runner.cut_off()  # this and the next may wait for the database, which may not hold up a stop
                    if runner.finds_database_back():
                        with stop_noted():
                            queue.put(PROBE, None, delay_ms=0, replace=True)
                            for message_id in runner.take_held_up():
                                queue.again(message_id)
            except Stopped:
                runner.stop()
                self.stderr.write("stopping: tasks that run may end within 30 s (a second signal ends it immediately)")
