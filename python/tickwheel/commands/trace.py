"""`tickwheel trace`."""

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON.")
def trace(as_json: bool) -> None:
    """Show a timing wheel at work, step by step."""
    import tickwheel.trace

    tickwheel.trace.run(as_json=as_json, console=None)
