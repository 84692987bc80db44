"""The destinations of messages (rule D10): `open_sink` finds a sink's kind by its address.

Files and webhooks are written by the engine itself: `Destination` of `tickwheel._native`. Every other kind is one file.
"""

import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tickwheel._native import Destination
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.sinks.addresses import without_secrets
from tickwheel.delivery.sinks.coroutine import CoroutineFunction
from tickwheel.delivery.sinks.handlers import Handlers
from tickwheel.delivery.sinks.python import OwnSink, sink_of, sink_of_function
from tickwheel.delivery.sinks.sink import Delivery, Refusals, Sink, SinkOpener, SinkSettings
from tickwheel.delivery.sinks.webhook import Webhook

__all__ = [
    "CoroutineFunction",
    "Delivery",
    "Destination",
    "Handlers",
    "Opener",
    "OwnSink",
    "Refusals",
    "Sink",
    "SinkOpener",
    "SinkSettings",
    "Webhook",
    "open_sink",
    "path_of",
    "sink_of",
    "sink_of_function",
]


class _Kind(NamedTuple):
    """`module` has an `opener_of(spec)`. It is imported only when needed, because it may require a `library`."""

    form: str
    module: str
    library: str | None = None


_WEBHOOK = "http://HOST/PATH or https://HOST/PATH"

_KINDS = {
    "python": _Kind("python:MODULE:FUNCTION, python:MODULE:CLASS", "python"),
    "sqlite": _Kind("sqlite:PATH?table=T", "sqlite"),
    "postgresql": _Kind("postgresql://USER:PASSWORD@HOST/DATABASE?table=T", "postgresql", "psycopg"),
    "kafka": _Kind("kafka://BROKERS/TOPIC", "kafka", "confluent_kafka"),
}


Opener: TypeAlias = SinkOpener | Destination | CoroutineFunction
"""The things that a run opens at its start."""


def open_sink(spec: str, webhook: Webhook | None = None) -> Opener:
    """The opener of the sink that `--to` names; `webhook` is for HTTP alone. Errors: `WrongUsage` if there is no such
    sink. Errors when it is opened and the destination can't be used: `DeliveryFailed`, or `WrongUsage` for a file.
    """
    if not spec:
        raise WrongUsage(f"the destination is empty: it may be {_forms()}")
    name, colon, _ = spec.partition(":")
    if name in ("http", "https") and colon:
        webhook = webhook or Webhook()
        return Destination.http(spec, headers=webhook.headers, secrets=webhook.secrets)
    if webhook is not None:
        raise WrongUsage(f"--webhook-header and --webhook-secret-file are only for {_WEBHOOK}: leave them out")
    if spec == "named":
        return Destination.named()
    if spec == "-" and sys.__stdout__ is None:
        raise WrongUsage("standard output is closed: open it, or name another destination, as file:PATH")
    if spec == "-":
        return Destination.standard_output()
    if (path := _file_of(spec)) is not None:
        return Destination.file(path)
    kind = _KINDS.get(name) if colon else None
    if kind is None:
        hint = "" if colon else f": write file:{spec}"
        if name.lower() in ("file", "http", "https", *_KINDS) and name != name.lower():
            hint = f": write {name.lower()}: in small letters"
        raise WrongUsage(f"{without_secrets(spec)} is not a destination: it may be {_forms()}{hint}")
    opener: Opener = _module(kind).opener_of(spec)
    return opener


def _forms() -> str:
    return ", ".join(
        [
            "- (standard output)",
            "file:PATH",
            _WEBHOOK,
            "named (those that messages name)",
            *(kind.form for kind in _KINDS.values()),
        ]
    )


def _module(kind: _Kind) -> Any:
    try:
        return importlib.import_module(f"tickwheel.delivery.sinks.{kind.module}")
    except ImportError as error:
        if kind.library is None:
            raise
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == kind.library
        problem = "is not installed" if is_missing else f"can't be imported ({error})"
        extra = f"run pip install 'tickwheel[{kind.module}]'"
        raise WrongUsage(f"{kind.library}, which {kind.form} needs, {problem}: {extra}") from error


def path_of(spec: str) -> Path | None:
    """The file that a sink writes, or `None`."""
    kind, _, rest = spec.partition(":")
    path = rest.rpartition("?")[0] if kind == "sqlite" else ""
    return Path(path) if path else _file_of(spec)


def _file_of(spec: str) -> Path | None:
    kind, _, path = spec.partition(":")
    return Path(path) if kind == "file" and path else None
