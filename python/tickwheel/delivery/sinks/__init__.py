"""Where messages go (rule D10): `open_sink` knows every kind of sink by how it is written; each kind is one file."""

from pathlib import Path

from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.sinks.file import FileSink
from tickwheel.delivery.sinks.sink import Delivery, Sink

__all__ = ["Delivery", "FileSink", "Sink", "open_sink", "path_of"]


def open_sink(spec: str) -> Sink:
    """The sink that `--to` names. Errors: `WrongUsage` if there is no such sink, or it can't be opened."""
    if spec == "-":
        return FileSink.of_standard_output()
    path = path_of(spec)
    if path is None:
        hint = "" if ":" in spec else f": write file:{spec}"
        raise WrongUsage(f"{spec!r} is not a destination: it may be - (standard output) or file:PATH{hint}")
    try:
        return FileSink.of_path(path)
    except OSError as error:
        raise WrongUsage(f"{path} can't be written: {error.strerror}") from error


def path_of(spec: str) -> Path | None:
    """The file that a sink writes, if it writes one."""
    kind, _, path = spec.partition(":")
    return Path(path) if kind == "file" and path else None
