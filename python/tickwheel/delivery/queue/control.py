"""Steers delivery from outside (rule D16): a store that nothing delivers from, or a `tickwheel serve` over HTTP.

Both give the same answers, each once it is on disk. This is for the command line; a program uses `DeliveryQueue`.
"""

import time
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339, store_owner
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.bulk import why_refused
from tickwheel.delivery.model.entries import (
    OTHER_CONTENT,
    Act,
    Again,
    Answer,
    Event,
    ForgetEvent,
    Pause,
    RemoveDestination,
    RemoveTenant,
    Requeue,
    Reschedule,
    SetDestination,
    SetTenant,
)
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.observe.log import log_letters
from tickwheel.delivery.queue.server_view import ServerView, address, path_of
from tickwheel.delivery.sight import Action, StoreView
from tickwheel.delivery.sinks import Destination

_TIMEOUT_S: Final = 30
_LOOK_EVERY_S: Final = 0.2
Asked: TypeAlias = (
    Cancel
    | Reschedule
    | ForgetEvent
    | Requeue
    | Again
    | Pause
    | SetDestination
    | RemoveDestination
    | SetTenant
    | RemoveTenant
)
KEEP_IDS_DAYS: Final = 36_500.0
"""The longest: how long ids are kept is for the next deliverer to say."""


class StoreControl:
    """Opens a store, and delivers nothing. Errors: `WrongUsage` if there is none, or a process works with it."""

    warning: str | None = None  # the next deliverer knows which addresses are allowed

    def __init__(self, store: Path) -> None:
        self._view = StoreView(store)
        self._view.list(limit=1)  # there is one
        refuse_used(store)
        _check_letters(store)
        settings = Settings(keep_ids_days=KEEP_IDS_DAYS)
        self._running = Running(store, Destination.named(), settings, log_letters)

    def ask(self, item: Asked) -> Answer:
        """The answer of the engine."""
        return self._answer(item)

    def event(self, event: Event) -> int:
        """How many messages it has let go. Errors: `BadRecord`."""
        [receipt] = self._running.engine.submit([event], format="item")
        [(_, _, _, count)] = receipt.rows()
        if count is None:
            raise OTHER_CONTENT
        return count

    def test(self, name: str) -> tuple[str, str | None, float] | None:
        """What a test send to a destination brings; `None`: there is none."""
        return self._running.engine.test_destination(name)

    def begin(self, act: Act) -> None:
        """The same id again goes on with that action."""
        if (refused := why_refused(act, self._answer(act))) is not None:
            raise refused

    def action(self, id_: str) -> Action:
        """As the store has it."""
        [found] = self._view.actions(id_)
        return found

    def close(self) -> None:
        """Nothing was sent."""
        self._running.close(_TIMEOUT_S)

    def _answer(self, item: Asked | Act) -> Answer:
        [receipt] = self._running.engine.submit([item], format="item")
        [answer] = receipt.answers()
        if answer is Answer.REFUSED and isinstance(item, Pause):
            raise WrongUsage(": ".join(self._running.why_not_paused(item)))
        return answer  # type: ignore[return-value]  # it is no record


def refuse_used(store: Path) -> None:
    """Errors: `WrongUsage` if a process works with the store."""
    is_used, process = store_owner(store) or (False, None)
    if is_used:
        who = "another process" if process is None else f"process {process}"
        raise WrongUsage(
            f"{who} works with {store}: name the address of its tickwheel serve, such as http://127.0.0.1:7400, or"
            " stop it first"
        )


def _check_letters(store: Path) -> None:
    """Opening the store writes its dead letters out, and only a deliverer knows where to (D2). Errors: `WrongUsage`."""
    with StoreSnapshot(store) as db:
        left = db.unwritten_letters()
    if left:
        raise WrongUsage(
            f"{store} has dead letters that its last run did not write out ({left:,}): run its tickwheel deliver or"
            " serve again, which does that first, and steer that one"
        )


class _Tested(msgspec.Struct):
    state: str
    error: str | None = None
    took_ms: float = 0


class HttpControl(ServerView):
    """Asks a `tickwheel serve`. `warning`: what it said beside its last answer."""

    warning: str | None = None

    def ask(self, item: Asked) -> Answer:
        """By the routes of `serve/http.py`."""
        match item:
            case Cancel(id, key):
                answer = self.request("DELETE", address("/message", id=id, key=key))
            case Reschedule(id, key, due_ms):
                to = address("/message", id=id, key=key)  # of a rule: each try would move another occurrence
                answer = self.request("PATCH", to, {"due": rfc_3339(due_ms)}, is_once=True)
            case ForgetEvent(id, key):
                answer = self.request("DELETE", address("/remembered", id=id, key=key))
            case Requeue(id, key):
                answer = self.request("POST", "/requeue", {"id": id, "key": key})
            case Again(id, key):
                answer = self.request("POST", address("/again", id=id, key=key))
            case Pause(is_paused, key, destination, tenant, until_ms):
                path = "/pause" if is_paused else "/resume"
                names = {"key": key, "destination": destination, "tenant": tenant}
                until = None if until_ms is None else rfc_3339(until_ms)
                answer = self.request("POST", address(path, **names, until=until))
            case SetDestination(name, settings):
                answer = self.request("PUT", path_of("destinations", name), msgspec.Raw(settings.encode()))
            case RemoveDestination(name, dead):
                path = path_of("destinations", name)
                answer = self.request("DELETE", address(path, messages="dead" if dead else None))
            case SetTenant(name, settings):
                answer = self.request("PUT", path_of("tenants", name), msgspec.Raw(settings.encode()))
            case RemoveTenant(name):
                answer = self.request("DELETE", path_of("tenants", name))
        self.warning = answer.warning
        assert answer.state is not None, "a reason alone is an error"
        return answer.state

    def event(self, event: Event) -> int:
        """As of `StoreControl`."""
        given = {name: value for name, value in msgspec.structs.asdict(event).items() if value is not None}
        return self.request("POST", "/messages", {"op": "event", **given}).let_go or 0

    def test(self, name: str) -> tuple[str, str | None, float] | None:
        """As of `StoreControl`."""
        answer = self._read(self._ask("POST", f"{path_of('destinations', name)}/test"), _Tested)
        return None if answer.state == Answer.UNKNOWN else (answer.state, answer.error, answer.took_ms)

    def begin(self, act: Act) -> None:
        """The same id again is harmless."""
        times = {"due_from": act.due_from_ms, "due_before": act.due_before_ms}
        filters = {name: None if ms is None else rfc_3339(ms) for name, ms in times.items()}
        filters |= {"key": act.filter_key, "key_prefix": act.key_prefix}
        filters |= {"destination": act.destination, "tenant": act.tenant}
        is_all = all(value is None for value in filters.values())
        self.request("POST", "/actions", {"kind": act.kind, "id": act.id, **filters, "all": is_all})


Control: TypeAlias = StoreControl | HttpControl
"""Errors of every call: `WrongUsage`, `DeliveryFailed`."""


def wait(control: Control, act: Act) -> Action:
    """Begin an action, and wait for its end."""
    control.begin(act)
    while (found := control.action(act.id)).ended is None:
        time.sleep(_LOOK_EVERY_S)
    return found
