"""The queue of a worker: a `DeliveryQueue` that knows whose tasks it has, and begins none while it closes.

- A store has the tasks of one database. Each message names the alias of its own. A worker of another database would
  find no result there, and drop the tasks: so it does not take the store.
- A close lets tasks end that run. A `DeliveryQueue` would begin what is due too, for as long as the close may take.
"""

from pathlib import Path
from typing import Any, Final

from django.db import connections

from tickwheel._native import SETTINGS
from tickwheel._stopping import Stopped
from tickwheel.delivery import DeliveryQueue, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.sight import StoreView
from tickwheel.django.database import database_of, is_same, outbox_of
from tickwheel.django.running import Runner

_DELIVERIES: Final = int(SETTINGS["max-attempts"][3])  # the most: the runner decides when a task has failed
_WAITS_S: Final = SETTINGS["unanswered-for"][3]  # the longest: a database that is down costs no task
_TASKS_END_WITHIN_S: Final = 30.0
_LOOKED_AT: Final = 1_000  # messages, a millisecond or two each; a probe tells nothing
_CLOSES_WITHIN_S: Final = 0.5  # the outcomes of calls that have just ended are on their way


class TaskQueue(DeliveryQueue):
    """Waits while another worker has the store. Errors: also `ImproperlyConfigured`."""

    def __init__(
        self,
        store: str,
        runner: Runner,
        *,
        concurrency: int,
        tenant_concurrency: int | None = None,
        tenant_rate: str | None = None,
        replicate_to: str | None = None,
    ) -> None:
        self._runner = runner
        super().__init__(
            store,
            to=runner.run,
            outbox=outbox_of(connections[runner.database]),
            concurrency=concurrency,
            tenant_concurrency=tenant_concurrency,
            tenant_rate=tenant_rate,
            replicate_to=replicate_to,
            max_attempts=_DELIVERIES,
            unanswered_for_s=_WAITS_S,
            sink_timeout_s=runner.task_timeout_s,
        )

    def close(self) -> None:
        """Begin no task, wait for those that run, at most 30 s, and stop. Errors: `DeliveryFailed`."""
        self._runner.stop()
        try:
            try:
                self._runner.wait_until_idle(_TASKS_END_WITHIN_S)
            except Stopped:  # the first signal, as delivery had ended by itself: a second one ends the process
                self._runner.wait_until_idle(_TASKS_END_WITHIN_S)
        finally:
            try:
                self._running.close(_CLOSES_WITHIN_S)
            finally:
                self._runner.let_go()

    def _run(self, *given: Any, **options: Any) -> Running:
        running = super()._run(*given, **options)
        try:
            self._check_database(running.view, running.store)
        except BaseException:
            running.close(0)
            raise
        return running

    def _check_database(self, view: StoreView, store: Path) -> None:
        """Before the start, when no other process can put tasks into the store. One task tells of all, but a probe
        names no database.
        """
        seen = (view.show(message.id, message.key) for message in view.list(limit=_LOOKED_AT).messages)
        aliases = (database_of(message.payload) for message in seen if message and message.payload)
        alias = next((it for it in aliases if it is not None), None)
        if alias is not None and not is_same(alias, self._runner.database):
            has = f"{store} has waiting tasks of the database {alias!r}"
            raise WrongUsage(f"{has}, and this worker is of {self._runner.database!r}: give it a --store of its own")
