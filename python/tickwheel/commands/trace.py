"""`tickwheel trace`."""

import json

import click

from tickwheel.commands.printing import say_lines


@click.command()
@click.option("--all", "is_whole", is_flag=True, help="Show each step of the wheel, with its reasons: some 500 lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the states of the steps of --all as JSON.")
def trace(is_whole: bool, as_json: bool) -> None:
    """Show a timing wheel at work, on one page."""
    if as_json:
        from tickwheel.trace import document

        say_lines(json.dumps(document(), indent=1))
    elif is_whole:
        from rich.console import Console

        from tickwheel._trace_text import show
        from tickwheel.trace import walk

        show(walk(), Console())
    else:
        from tickwheel._trace_page import page

        say_lines(page())
