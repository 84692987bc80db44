"""`tickwheel store`: the upkeep of a store's file by an operator."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tickwheel.commands.options import GIVEN, PATH
from tickwheel.commands.printing import errors_reported, say, say_lines

if TYPE_CHECKING:
    from tickwheel.delivery.engine.upkeep import CheckedStore

_OF_CHAIN: Final = ("env:", "file:", "postgresql:")
_store = click.argument("store", metavar="STORE", type=PATH)


@click.group()
def store() -> None:
    """Check, compact, back up or restore a store: the file of --store; or end its replication."""


@store.command()
@_store
def check(store: Path) -> None:
    """Say whether STORE is whole; it may be in use. Exit code 1: something is wrong, and it says what."""
    from tickwheel.delivery.engine.upkeep import check_store

    with _work(f"checking {store}"):
        checked = check_store(store)
    if _told(store, checked):
        say("Back up the file as it is, and restore a backup: tickwheel store restore BACKUP STORE --force")
        sys.exit(1)
    say("No problem found.")


@store.command()
@_store
def compact(store: Path) -> None:
    """Give the free pages of STORE back to the disk, while nothing delivers from it.

    The file is written anew: until that is done, it needs as much room again.
    """
    from tickwheel.delivery.engine.upkeep import compact_store

    with _work(f"compacting {store}"):
        done = compact_store(store)
    say(f"{store}: {_size(done.before)} before, {_size(done.after)} now.")


@store.command()
@_store
@click.argument("to", metavar="TO", type=PATH)
def backup(store: Path, to: Path) -> None:
    """Copy STORE, which may be in use, to the new file TO.

    TO is the store at one moment, complete and checked, or not there. It delivers nothing: restore it first.
    """
    from tickwheel.delivery.engine.upkeep import backup_store

    with _work(f"copying {store}"):
        checked = backup_store(store, to)
    if _told(to, checked):
        sys.exit(1)


@store.command()
@click.argument("backup", metavar="BACKUP", type=GIVEN)
@_store
@click.option(
    "--force",
    is_flag=True,
    help="Also where STORE exists: it stays as STORE.replaced. Also where the check finds a problem in BACKUP.",
)
def restore(backup: str, store: Path, force: bool) -> None:
    """Make STORE of BACKUP.

    BACKUP is a file, or the address of --replicate-to: postgresql://..., or env:VARIABLE or file:PATH. Then STORE is
    new, has all that was answered, and belongs to that PostgreSQL still.

    STORE is as at the backup. Everything due by now is delivered again, as redelivered, unless the destination says
    that it has it. Messages and cancels that were accepted since the backup are unknown.
    """
    from tickwheel.delivery.engine.upkeep import restore_replicated, restore_store

    if backup.startswith(_OF_CHAIN):
        with _work("fetching the store"):
            restore_replicated(_address("BACKUP", backup), store)
        say(f"{store}: restored. To deliver from it, run with --store {store} and --replicate-to")
        return
    with _work(f"restoring {backup}"):
        replaced = restore_store(Path(backup), store, force=force)
    if replaced is not None:
        say(f"The store that was there is {replaced} now.")
    say(f"{store}: restored. To deliver from it, run with --store {store}")


@store.command()
@_store
@click.option(
    "--replicate-to",
    metavar="ADDRESS",
    required=True,
    help="Where it is replicated to: postgresql://user@host/database?store=NAME, or env:VARIABLE or file:PATH.",
)
def leave(store: Path, replicate_to: str) -> None:
    """End the replication of STORE, for good: the file has all of it, and is alone.

    Stop its processes first. No process takes the store over from PostgreSQL any more; its rows stay there.
    """
    from tickwheel.delivery.engine.upkeep import leave_replication

    with _work(f"ending the replication of {store}"):
        leave_replication(store, _address("--replicate-to", replicate_to))
    say(f"{store}: not replicated any more. To deliver from it, run without --replicate-to")


@store.command()
def replication_script() -> None:
    """Print the SQL that makes the tables of --replicate-to, for users of PostgreSQL that may not make any."""
    from tickwheel import _native

    say_lines(_native.replication_script().strip())


def _address(option: str, value: str) -> str:
    from tickwheel.delivery.sinks.webhook import read_value

    with errors_reported():
        return read_value(option, value)


@contextmanager
def _work(what: str) -> Iterator[None]:
    """As `errors_reported`. Shows on a terminal that it takes its time."""
    from tickwheel.delivery.base.standard_error import StandardError

    console = StandardError().console()
    with errors_reported(), console.status(what) if console.is_terminal else nullcontext():
        yield


def _told(path: Path, checked: "CheckedStore") -> bool:
    if checked.messages or not checked.problems:  # otherwise nothing could be counted
        say(f"{path}: messages {checked.messages:,}, waiting {checked.waiting:,}.")
    for problem in checked.problems:
        say(f"Problem: {problem}")
    return bool(checked.problems)


def _size(size: int) -> str:
    """Bytes as text.

    >>> _size(4096), _size(3 << 20), _size(5 << 30)
    ('4 KiB', '3 MiB', '5,120 MiB')
    """
    return f"{size / (1 << 20):,.0f} MiB" if size >= 1 << 20 else f"{size / 1024:,.0f} KiB"
