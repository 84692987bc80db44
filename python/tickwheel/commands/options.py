"""What `deliver` and `serve` share: options, and how a process that delivers sets itself up."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from tickwheel.delivery.dead_letters import PutLetters
    from tickwheel.delivery.engine import Settings

to_option = click.option(
    "--to",
    metavar="SINK",
    default="-",
    show_default=True,
    help="Destination: - (standard output), file:PATH, python:MODULE:FUNCTION, http(s)://..., "
    "sqlite:PATH?table=T, postgresql://...?table=T, kafka://BROKERS/TOPIC.",
)

dead_letters_option = click.option(
    "--dead-letters",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append bad records to FILE as NDJSON; by default they go to standard error.",
)


def delivery_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that `deliver` and `serve` share; they arrive in `settings_of`."""
    for option in reversed(
        (
            click.option("--order", type=click.Choice(["key", "global"]), default="key", show_default=True,
                         help="In order per key, or all in one order, one at a time."),
            click.option("--horizon", metavar="SECONDS", type=float, default=10, show_default=True,
                         help="How far ahead messages are brought into memory."),
            click.option("--max-attempts", metavar="N", type=int, default=5, show_default=True,
                         help="How often one is tried, before it goes to the dead letters."),
            click.option("--sink-timeout", metavar="SECONDS", type=float, default=30, show_default=True,
                         help="When an attempt is given up that gets no answer."),
            click.option("--keep-ids", metavar="DAYS", type=float, default=7, show_default=True,
                         help="How long a message is known after its outcome, to find duplicates."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def settings_of(
    order: Literal["key", "global"], horizon: float, max_attempts: int, sink_timeout: float, keep_ids: float
) -> "Settings":
    """What was given to `delivery_options`. Errors: `WrongUsage`."""
    from tickwheel.delivery.engine import Settings
    from tickwheel.delivery.retry import Retry

    return Settings(order, horizon, sink_timeout, keep_ids, Retry(max_attempts))


def put_letters(path: Path | None, say: Callable[[str], object]) -> "PutLetters":
    """Where dead letters go: to that file, or to people."""
    from tickwheel.delivery import dead_letters

    return dead_letters.to_file(path) if path else dead_letters.to_lines(say)


def give_threads_their_turn() -> None:
    """In a process that does nothing but deliver, no thread keeps the others waiting for long.

    One that computes keeps the interpreter for 0.5 ms, not 5. The garbage collector no longer looks at what is there
    by now: to look at all that was imported takes 20 ms, and every thread waits meanwhile.
    """
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
