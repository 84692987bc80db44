"""Keeps what Spark writes at every start off the terminal, where it would hide what the command says."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NOISE: Final = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)


@contextmanager
def quiet_start() -> Iterator[None]:
    """A JVM started meanwhile, and its child processes, have a standard error without these lines."""
    sys.stderr.flush()
    read, write = os.pipe()
    before = os.dup(2)
    threading.Thread(target=_filter, args=(read, os.dup(2)), name="quiet-start", daemon=True).start()
    os.dup2(write, 2)
    os.close(write)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def _filter(read: int, out: int) -> None:
    """Pass lines on until all who write them have ended. An empty line behind one that is dropped is too."""
    with open(read, "rb") as lines, open(out, "wb", buffering=0) as shown:
        was_noise = False
        for line in lines:
            was_noise = line.startswith(_NOISE) or (was_noise and line == b"\n")
            if not was_noise:
                shown.write(line)
