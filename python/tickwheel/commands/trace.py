"""`tickwheel trace`."""

import click

from tickwheel.commands.printing import say_lines


@click.command()
def trace() -> None:
    """Show a timing wheel at work, on one page."""
    from tickwheel._trace_page import page

    say_lines(page())
