"""`tickwheel trace`."""

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON.")
def trace(as_json: bool) -> None:
    """Show a timing wheel at work, step by step."""
    from tickwheel.trace import document, walk

    if as_json:
        click.echo(json.dumps(document(), indent=1))
        return
    from rich.console import Console

    from tickwheel._trace_text import show

    show(walk(), Console())
