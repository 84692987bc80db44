"""Steers delivery from outside (rule D16): a store that nothing delivers from, or a `tickwheel serve` over HTTP.

Both give the same answers, each once it is on disk. This is for the command line; a program uses `DeliveryQueue`.
"""

import http.client
import ssl
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339, store_owner
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.bulk import OTHER_ACTION
from tickwheel.delivery.model.entries import Act, Again, Answer, Item, Pause, Requeue, Reschedule
from tickwheel.delivery.model.message import Cancel
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.observe.log import log_letters
from tickwheel.delivery.sight import Action, StoreStatus, StoreView
from tickwheel.delivery.sinks import sink_of_function

_T = TypeVar("_T")
_TIMEOUT_S: Final = 30
_LOOK_EVERY_S: Final = 0.2
_LONGEST_ANSWER: Final = 1 << 24
_KEEP_IDS_DAYS: Final = 36_500.0  # the longest: how long ids are kept is for the next deliverer to say


class Control(ABC):
    """Errors of every call: `WrongUsage`, `DeliveryFailed`."""

    @abstractmethod
    def ask(self, item: Cancel | Reschedule | Requeue | Again | Pause) -> Answer:
        """The answer to one request."""

    @abstractmethod
    def begin(self, act: Act) -> None:
        """Begin an action on many messages."""

    @abstractmethod
    def action(self, id_: str) -> Action:
        """How far an action is."""

    @abstractmethod
    def close(self) -> None:
        """Close the store, or the HTTP client."""

    def wait(self, act: Act) -> Action:
        """Begin an action, and wait for its end."""
        self.begin(act)
        while (found := self.action(act.id)).ended is None:
            time.sleep(_LOOK_EVERY_S)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class StoreControl(Control):
    """Opens a store, and delivers nothing. Errors: `WrongUsage` if there is none, or a process works with it."""

    def __init__(self, store: Path) -> None:
        self._view = StoreView(store)
        self._view.list(limit=1)  # there is one
        is_used, process = store_owner(store) or (False, None)
        if is_used:
            who = "another process" if process is None else f"process {process}"
            raise WrongUsage(
                f"{who} works with {store}: name the address of its tickwheel serve, such as http://127.0.0.1:7400, or"
                " stop it first"
            )
        _check_letters(store)
        settings = Settings(keep_ids_days=_KEEP_IDS_DAYS)
        self._running = Running(store, sink_of_function(_never), settings, log_letters)

    def ask(self, item: Cancel | Reschedule | Requeue | Again | Pause) -> Answer:
        """The answer of the engine."""
        return self._answer(item)

    def begin(self, act: Act) -> None:
        """The same id again goes on with that action."""
        if self._answer(act) is Answer.CONFLICT:
            raise OTHER_ACTION

    def action(self, id_: str) -> Action:
        """As the store has it."""
        [found] = self._view.actions(id_)
        return found

    def close(self) -> None:
        """Nothing was sent."""
        self._running.close(_TIMEOUT_S)

    def _answer(self, item: Item) -> Answer:
        [answer] = self._running.submit([item]).result()
        if answer is Answer.REFUSED:
            raise WrongUsage(": ".join(self._running.why_not_paused()))
        return answer


def _check_letters(store: Path) -> None:
    """Opening the store writes its dead letters out, and only a deliverer knows where to (D2). Errors: `WrongUsage`."""
    with StoreSnapshot(store) as db:
        left = db.unwritten_letters()
    if left:
        raise WrongUsage(
            f"{store} has dead letters that its last run did not write out ({left:,}): run its tickwheel deliver or"
            " serve again, which does that first, and steer that one"
        )


def _never(_delivery: object) -> None:
    raise AssertionError("nothing is due in a store that is only opened")


class HttpControl(Control):
    """Asks a `tickwheel serve`. `url`: `http://HOST:PORT`, or https. Proxies of the environment are not asked."""

    def __init__(self, url: str, token: bytes | None = None, context: ssl.SSLContext | None = None) -> None:
        try:
            parts = urlsplit(url)
        except ValueError as error:  # as of half a bracket
            raise WrongUsage(f"{url!r:.200} is no address of a tickwheel serve: {error}") from None
        if not parts.netloc or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise WrongUsage(f"{url!r:.200} is no address of a tickwheel serve: write http://HOST:PORT, or https://")
        _check_port(url, parts)
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._headers = {} if token is None else {"authorization": f"Bearer {token.decode('ascii')}"}
        secure = urllib.request.HTTPSHandler(context=context or ssl.create_default_context())
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)

    def ask(self, item: Cancel | Reschedule | Requeue | Again | Pause) -> Answer:
        """By the routes of `serve/http.py`."""
        match item:
            case Cancel(id, key):
                answer = self._request("DELETE", _path(id, key))
            case Reschedule(id, key, due_ms):
                answer = self._request("PATCH", _path(id, key), {"due": rfc_3339(due_ms)})
            case Requeue(id, key):
                answer = self._request("POST", "/requeue", {"id": id, "key": key})
            case Again(id, key):
                answer = self._request("POST", "/again" + (_of(key) or f"?id={quote(str(id), safe='')}"))
            case Pause(is_paused, key):
                answer = self._request("POST", ("/pause" if is_paused else "/resume") + _of(key))
        return Answer(answer["state"])

    def begin(self, act: Act) -> None:
        """The same id again is harmless."""
        times = {"due_from": act.due_from_ms, "due_before": act.due_before_ms}
        filters = {name: None if ms is None else rfc_3339(ms) for name, ms in times.items()}
        filters |= {"key": act.filter_key, "key_prefix": act.key_prefix}
        is_all = all(value is None for value in filters.values())
        self._request("POST", "/actions", {"kind": act.kind, "id": act.id, **filters, "all": is_all})

    def action(self, id_: str) -> Action:
        """As the server's store has it."""
        return self._asked(f"/actions/{quote(id_, safe='')}", Action)

    def status(self) -> StoreStatus:
        """The figures of the server, which also knows its keys in doubt."""
        return self._asked("/status", StoreStatus)

    def close(self) -> None:
        """Each request has its own connection."""
        self._opener.close()

    def _asked(self, path: str, kind: type[_T]) -> _T:
        try:
            return msgspec.convert(self._request("GET", path), kind)
        except msgspec.ValidationError as error:
            problem = (
                f"{self._url} answers, but not as a tickwheel serve of this version: {error}: update the older one"
            )
            raise DeliveryFailed(problem) from error

    def _request(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else msgspec.json.encode(body)
        headers = {**self._headers, "content-type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310, http or https
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                status, text = response.status, response.read(_LONGEST_ANSWER)
        except urllib.error.HTTPError as refused:
            with refused:
                status, text = refused.code, refused.read(_LONGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise DeliveryFailed(f"{self._url} can't be asked: {reason}") from error
        return self._answer(status, text)

    def _answer(self, status: int, text: bytes) -> Any:
        try:
            answer = msgspec.json.decode(text)
            if "reason" in answer:
                problem = f"{self._url} answers {status}: {answer['reason']} (allowed: {answer['allowed']})"
                raise DeliveryFailed(problem) if status >= 500 else WrongUsage(problem)
        except (msgspec.DecodeError, TypeError, KeyError) as error:
            raise DeliveryFailed(f"{self._url} answers {status}, and not as a tickwheel serve does") from error
        return answer


def _check_port(url: str, parts: SplitResult) -> None:
    """A system takes a greater number for another port, and the token would go there. Errors: `WrongUsage`."""
    try:
        is_one = parts.port is None or parts.port > 0
    except ValueError:
        is_one = False
    if not is_one:
        raise WrongUsage(f"the port of {url!r:.200} can't be used: write http://HOST:PORT with a port from 1 to 65535")


def _path(id_: str, key: str | None) -> str:
    return f"/messages/{quote(id_, safe='')}{_of(key)}"


def _of(key: str | None) -> str:
    return "" if key is None else f"?key={quote(key, safe='')}"
