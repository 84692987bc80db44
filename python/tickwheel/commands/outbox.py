"""`tickwheel outbox`."""

import click

from tickwheel.commands.printing import errors_reported, say_lines


@click.group()
def outbox() -> None:
    """Outboxes: tables that programs write in their own transactions, and `tickwheel serve --outbox` reads."""


@outbox.command(name="sql")
@click.option(
    "--dialect", type=click.Choice(["postgresql", "sqlite"]), required=True, help="The database that holds the table."
)
@click.option(
    "--table", metavar="T", default="tickwheel_outbox", show_default=True, help="Its name, in PostgreSQL also SCHEMA.T."
)
def sql(dialect: str, table: str) -> None:
    """Print the statement that makes the table, for a migration."""
    from tickwheel.delivery.outbox import create_statement

    with errors_reported():
        say_lines(f"{create_statement(dialect, table)};")
