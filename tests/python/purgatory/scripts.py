"""Runs a script of the purgatory in a process of its own, as `borders.harness` does, with a few names more."""

import textwrap
from pathlib import Path

from borders import harness

PRELUDE = f"""
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from purgatory.operations import EMPTY, HOUR, Op, Stranger, counts, together
from tickwheel import DelayedOperation, DelayedOperationPurgatory
sys.path.pop(0)
"""


def run_script(code: str, *, timeout: float = 30, first: str = "") -> str:
    """Runs `code`, which has to end by itself, well, and without a word on stderr; returns what it printed.

    `first` is run before tickwheel is imported."""
    return harness.run_script(PRELUDE + textwrap.dedent(code), timeout=timeout, first=first)
