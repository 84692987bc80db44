"""Prints the text of the commands. Nothing from outside is printed as it is: see `tickwheel._printable`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import click

from tickwheel._printable import printable


def say(text: str, *, err: bool = False) -> None:
    """Print one line, to standard error if `err`, and then nothing fails if it can't be written."""
    with suppress(OSError) if err else nullcontext():
        click.echo(printable(text), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print a text whose lines are the program's own."""
    for line in text.removesuffix("\n").split("\n"):
        say(line, err=err)


@contextmanager
def errors_reported() -> Iterator[None]:
    """Wrong usage ends the command with exit code 2, an error of a store, a server or an output with 3."""
    from tickwheel.delivery.base.errors import BadRecord, DeliveryFailed, WrongUsage

    try:
        yield
    except (WrongUsage, BadRecord) as error:
        raise click.UsageError(str(error)) from error
    except DeliveryFailed as error:
        say(f"Failed: {error}.", err=True)
        sys.exit(3)
