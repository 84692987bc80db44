"""One run of `tickwheel serve`: waits for its store, then opens its ports, and serves until a signal (rule D9).

    health -> the store's lock -> engine -> ports -> delivery starts   ...   ports close -> due messages are sent -> end

SIGTERM and Ctrl-C end it cleanly, a second one immediately. A failure of the store or of the destination also ends it
cleanly. Undelivered messages wait in the store for the next run, or for a second process that wants the store. SIGHUP
reads the files of tokens, certificates and webhooks again. systemd is told each step.
"""

import importlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tickwheel._stopping import REQUESTS, SignalEvent, Stopped, stop_noted, stopped_by_signals
from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.command.job import Result
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.message import MAX_PAYLOAD_LIMIT
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.observe.dead_letters import PutLetters
from tickwheel.delivery.observe.log import logger
from tickwheel.delivery.outbox.source import SourceOpener
from tickwheel.delivery.serve.access import Access, Address
from tickwheel.delivery.serve.credentials import Credentials
from tickwheel.delivery.serve.ports import Listening, Ports, why_few_connections
from tickwheel.delivery.serve.systemd import Notifier
from tickwheel.delivery.sinks import Opener

_LOOK_EVERY_S = 0.1
_STOP_WITHIN_S = 10
_STOPPING = "stopping (a second signal ends it immediately)"
_LIBRARIES = ("starlette", "uvicorn", "prometheus_client")


@dataclass(frozen=True, slots=True)
class Service:
    """The store, the destination, the settings and the addresses of a service. `max_payload`: bytes. `to`: what
    the page calls the destination. Errors: `WrongUsage`.
    """

    store: Path
    opener: Opener
    put_letters: PutLetters
    settings: Settings
    listen: Address
    credentials: Credentials
    max_payload: int
    health: Address | None = None
    outboxes: Sequence[SourceOpener] = ()
    to: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.max_payload <= MAX_PAYLOAD_LIMIT:
            raise WrongUsage(f"max-payload is {self.max_payload:,}: it may be 1 to {MAX_PAYLOAD_LIMIT:,} bytes")
        need_libraries()


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run ended."""

    result: Result
    code: int


def noted_hangups() -> SignalEvent:
    """An event that SIGHUP sets from now on. Call it in the main thread, before the files are read."""
    return SignalEvent(signal.SIGHUP)


def serve(
    service: Service, say: Callable[[str], object], read_again: SignalEvent, notifier: Notifier | None = None
) -> Ended:
    """Serve until a signal comes, or delivery fails. If `read_again` is set, the files are read again. Call it in the
    main thread. Errors: `WrongUsage`.
    """
    with stopped_by_signals(numbers=REQUESTS):
        return _serve(service, say, read_again, notifier or Notifier())


def _serve(service: Service, say: Callable[[str], object], read_again: SignalEvent, notifier: Notifier) -> Ended:
    running, ports, code, failure = None, None, 0, None
    try:
        access = Access(service.credentials.tokens, service.listen)
        listening = Listening(service.listen, service.health)
        ports = Ports(listening, access, service.credentials.certificates)
        wait = _waiter(listening, say, notifier)
        running = Running(
            service.store,
            service.opener,
            service.settings,
            service.put_letters,
            wait,
            standing_by=_standby(ports, say, notifier),
            outboxes=service.outboxes,
        )
        if read_again.is_set():  # while it waited for the store
            read_again.clear()
            service.credentials.read_again(access, say)
        with stop_noted() as stop:
            url = _opened(ports, running, service, stop)
            running.start()
            if why_few := why_few_connections():
                say(why_few)
            say(f"listening on {url}")
            notifier.ready(f"delivering from {service.store}")
        while ports.are_open():
            with stop_noted() as stop:
                running.check()
                notifier.alive()
                stop.wait(_LOOK_EVERY_S)
            if read_again.is_set():
                read_again.clear()
                with notifier.reloading():  # may wait for a file's disk, which may not hold up a stop
                    service.credentials.read_again(access, say)
        failure = "the HTTP server ended by itself"
    except Stopped as stopped:
        code = 130 if stopped.number == signal.SIGINT else 0
        say(_STOPPING)
    except WrongUsage:
        _close(running, ports)
        raise
    except Exception as error:
        failure = _failure(error)
    try:
        notifier.stopping(f"stopping; {service.store} keeps what is not delivered")
        failed = _close(running, ports)
    except Stopped:  # after a failure the first signal may still come
        say(_STOPPING)
        failed = _close(running, ports)
    if running is not None and running.engine.has_open_sinks:
        say(f"the destination did not end within {_STOP_WITHIN_S} s: what it had in hand is sent again by the next run")
    failure = failure or failed
    summary, recurring = (running.summary, running.recurring) if running is not None else (Summary(), 0)
    result = Result(
        summary, failure, interrupted=code == 130, stopped_at=None, store=service.store, recurring=recurring
    )
    return Ended(result, 3 if failure else code)


def _opened(ports: Ports, running: Running, service: Service, stop: SignalEvent) -> str:
    """The URL. A port that is taken is tried for a second. After a stop its error does not matter."""
    try:
        return ports.open(running, service.max_payload, service.to)
    except WrongUsage:
        if stop.is_set():
            raise Stopped(stop.number) from None
        raise


def _waiter(listening: Listening, say: Callable[[str], object], notifier: Notifier) -> Callable[[str], object]:
    """The function that reports why the process waits. At the first call it also says where to see its health."""
    url = listening.health_url
    answered = f"/livez and /readyz are answered on {url}"
    more = [f"until then {answered if url else 'no port is open; --health HOST:PORT would answer /livez and /readyz'}"]

    def wait(text: str) -> None:
        say(text)
        notifier.status(text)
        while more:
            say(more.pop(0))

    return wait


def _standby(ports: Ports, say: Callable[[str], object], notifier: Notifier) -> Callable[[str], object]:
    """The function that reports which process owns the replicated store."""

    def stand_by(text: str) -> None:
        ports.stand_by(text.partition(": waiting")[0])
        say(text)
        notifier.status(text)

    return stand_by


def _close(running: Running | None, ports: Ports | None) -> str | None:
    """Close everything, and return the error. If a call was interrupted, another call goes on."""
    if ports is not None:
        ports.close()
    try:
        if running is not None:
            running.close(_STOP_WITHIN_S)
    except Exception as error:
        return _failure(error)
    return None


def need_libraries() -> None:
    """Errors: `WrongUsage` if a library is missing, before any waiting."""
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise WrongUsage(f"{name} can't be imported ({error}): run pip install 'tickwheel[serve]'") from error


def _failure(error: Exception) -> str:
    if isinstance(error, DeliveryFailed):
        return str(error)
    logger.error("tickwheel has an error", exc_info=error)
    return f"{type(error).__name__}: {error}"
