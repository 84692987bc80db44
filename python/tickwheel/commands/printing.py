"""Prints the text of the commands. Nothing from outside is printed as it is: see `tickwheel._printable`."""

from contextlib import nullcontext, suppress

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
