"""The destinations of messages (rule D10): `open_sink` finds a sink's kind by its address; each kind is one file."""

import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.sinks.addresses import shown
from tickwheel.delivery.sinks.file import FileSink
from tickwheel.delivery.sinks.python import sink_of_function
from tickwheel.delivery.sinks.sink import Delivery, Refusals, Sink, SinkOpener, SinkSettings

__all__ = [
    "Delivery",
    "FileSink",
    "Lines",
    "Refusals",
    "Sink",
    "SinkOpener",
    "SinkSettings",
    "open_sink",
    "path_of",
    "sink_of_function",
]


class _Kind(NamedTuple):
    """`module` has an `opener_of(spec)`. It is imported only when needed, because it may require a `library`."""

    form: str
    module: str
    library: str | None = None


_HTTP = _Kind("http://HOST/PATH or https://HOST/PATH", "http", "urllib3")

_KINDS = {
    "python": _Kind("python:MODULE:FUNCTION", "python"),
    "http": _HTTP,
    "https": _HTTP,
    "sqlite": _Kind("sqlite:PATH?table=T", "sqlite"),
    "postgresql": _Kind("postgresql://USER:PASSWORD@HOST/DATABASE?table=T", "postgresql", "psycopg"),
    "kafka": _Kind("kafka://BROKERS/TOPIC", "kafka", "confluent_kafka"),
}


class Lines(NamedTuple):
    """The engine's own sink: lines of NDJSON to a file, or with `-` to standard output."""

    target: str


def open_sink(spec: str) -> SinkOpener | Lines:
    """The opener of the sink that `--to` names. Errors: `WrongUsage` if there is no such sink. Errors when it is opened
    and the destination can't be used: `DeliveryFailed`, or `WrongUsage` for a file.
    """
    if spec == "-" or _file_of(spec) is not None:
        path = _file_of(spec)
        return Lines("-" if path is None else os.path.join(".", path) if str(path) == "-" else str(path))
    name, colon, _ = spec.partition(":")
    kind = _KINDS.get(name) if colon else None
    if kind is None:
        forms = ", ".join(dict.fromkeys(kind.form for kind in _KINDS.values()))
        hint = "" if colon else f": write file:{spec}"
        raise WrongUsage(f"{shown(spec)} is not a destination: it may be - (standard output), file:PATH, {forms}{hint}")
    opener: SinkOpener = _module(kind).opener_of(spec)
    return opener


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
