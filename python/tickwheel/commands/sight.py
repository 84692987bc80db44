"""`tickwheel list`, `show`, `dead`, `status`: look into a store. They print, and change nothing."""

import errno
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import datetime
from functools import wraps
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from tickwheel.commands.control import server_of, targeted
from tickwheel.commands.options import full_text, time_of, together
from tickwheel.commands.printing import say, say_lines

if TYPE_CHECKING:
    from tickwheel.delivery.queue.server_view import ServerView
    from tickwheel.delivery.sight import Destinations, DestinationSeen, KeyInDoubt, Page, StoreStatus, StoreView
    from tickwheel.delivery.sight.tenants import TenantSeen

_WHOLE = ("due", "next try", "ended", "at", "tried", "late", "line", "fails for", "sends", "overdue", "rate")
"""Columns that are not folded, however narrow the terminal is."""
_READABLE: Final = 12
"""Characters for each line of any other column, at least."""
_STATES: Final = ("waiting", "recurring", "delivered", "cancelled", "dead", "expired")
_REMEMBERED: Final = "remembered"
_NAMED = 5

_TARGET = "TARGET is a file of --store, which may be in use; or the address of a server, as http://127.0.0.1:7400."

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_of_share = together(
    click.option("--destination", metavar="NAME", callback=full_text, help="Only messages that name this destination."),
    click.option("--tenant", metavar="NAME", callback=full_text, help="Only messages that name this tenant."),
)
of_page = together(
    click.option("--limit", metavar="N", type=int, default=20, show_default=True, help="At most so many: 1 to 1,000."),
    click.option("--cursor", metavar="TEXT", help="Go on where a page ended, with the same filters."),
)


def looks(command: Callable[..., None], group: click.Group | None = None) -> click.Command:
    """As `targeted`, for a command whose work is its output."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # click ends quietly
            say(f"Failed: standard output can't be written: {error.strerror}.", err=True)
            sys.exit(3)

    made = targeted(run, _TARGET)
    if group is not None:
        group.add_command(made)
    return made


@looks
@click.option(
    "--state",
    type=click.Choice([*_STATES, _REMEMBERED]),
    default="waiting",
    show_default=True,
    help="The state to list: waiting messages, in order of delivery; recurring messages, with the next due time;"
    " messages with this outcome, the last outcome first; or remembered events, with the end of their time.",
)
@click.option("--key", metavar="KEY", callback=full_text, help="Only messages of this key.")
@_of_share
@click.option(
    "--until",
    metavar="NAME",
    callback=full_text,
    help="Only messages that wait for an event of this name, or remembered events of it.",
)
@click.option(
    "--due-from", metavar="TIME", callback=time_of, help="Only messages due then or later: RFC 3339, or epoch ms."
)
@click.option("--due-before", metavar="TIME", callback=time_of, help="Only messages due before that.")
@of_page
@as_json
def list_(
    target: str, access: dict[str, Any], state: str, limit: int, cursor: str | None, as_json: bool, **which: Any
) -> None:
    """List the messages of a store."""
    with view_of(target, access) as view:
        page = _page(view, limit, cursor, state=state, **which)
    if as_json:
        print_json(page)
        return
    if state == "recurring":
        recurring = [(it.due, it.id, it.key, it.destination, it.tenant, it.rule) for it in page.messages]
        print_table(("due", "id", "key", "destination", "tenant", "rule"), recurring, page.next)
        return
    if state == _REMEMBERED:
        events = [(it.due, it.event_name, it.key, it.id) for it in page.messages]
        print_table(("until", "event", "key", "id"), events, page.next)
        return
    rows = [
        (it.due, it.id, it.key, it.destination, it.tenant, it.attempts or None, it.next_try or it.ended,
         it.last_error or _late(it.lateness_ms))
        for it in page.messages
    ]  # fmt: skip
    when = "next try" if state == "waiting" else "ended"
    more = {"waiting": "last error", "dead": "why"}.get(state, "late")
    print_table(("due", "id", "key", "destination", "tenant", "tried", when, more), rows, page.next)


def view_of(target: str, access: dict[str, Any]) -> "AbstractContextManager[StoreView | ServerView]":
    """What shows the store, or the server. Errors: `WrongUsage`."""
    from tickwheel.delivery.sight import StoreView

    server = server_of(target, access)
    return closing(server) if server else nullcontext(StoreView(target))


def _page(view: "StoreView | ServerView", limit: int, cursor: str | None, **which: Any) -> "Page":
    """A full page, if there are enough messages: one look may find fewer."""
    from tickwheel.delivery.sight import Page

    page = view.list(limit=limit, cursor=cursor, **which)
    found = list(page.messages)
    while page.next is not None and len(found) < limit:
        page = view.list(limit=limit - len(found), cursor=page.next, **which)
        found += page.messages
    return Page(found, page.next)


@looks
@click.argument("id_", metavar="ID")
@click.option("--key", metavar="KEY", callback=full_text, help="The message's key, if it has one.")
@as_json
def show(target: str, access: dict[str, Any], id_: str, key: str | None, as_json: bool) -> None:
    """Show a message: its state, attempts and payload. The exit code is 1 if it is not there."""
    import msgspec

    with view_of(target, access) as view:
        found = view.show(id_, key)
        keys = _keys_of(view, id_) if found is None else []
    if found is None:
        of_key = "without a key" if key is None else f"of the key {key!r}"
        say(f"There is no message {id_!r} {of_key}: it has not come, or it is forgotten.", err=True)
        if keys:
            more = f", and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
            named = ", ".join(f"{each:.200}" for each in map(quote, keys[:_NAMED]))
            say(f"There is one of another key: --key {named}{more}", err=True)
        sys.exit(1)
    if as_json:
        print_json(found)
    else:
        print_fields(msgspec.structs.asdict(found))


def _keys_of(view: "StoreView | ServerView", id_: str) -> list[str]:
    """The keys with a message of this id, among the first thousand messages of each state."""
    pages = (view.list(state=state, limit=1_000) for state in _STATES)
    return sorted({it.key for page in pages for it in page.messages if it.id == id_ and it.key is not None})


@looks
@_of_share
@of_page
@as_json
def dead(target: str, access: dict[str, Any], limit: int, cursor: str | None, as_json: bool, **which: Any) -> None:
    """List the dead letters that a store has kept, the last one first: bad records, and messages that were given up."""
    with view_of(target, access) as view:
        page = view.dead(limit=limit, cursor=cursor, **which)
    if as_json:
        print_json(page)
        return
    rows = [(it.at, it.source, str(it.line), it.destination, it.tenant, it.reason, it.record) for it in page.letters]
    print_table(("at", "source", "line", "destination", "tenant", "reason", "record"), rows, page.next)


@looks
@click.option("--tenants", is_flag=True, help="The busiest tenants too, which only a server knows.")
@as_json
def status(target: str, access: dict[str, Any], tenants: bool, as_json: bool) -> None:
    """Show a store in figures: waiting messages, due times, outcomes, and the keys that fail, with the reason.

    A server also knows how many keys are in doubt, and how many spare places are taken.
    """
    import msgspec

    with view_of(target, access) as view:
        found = view.status()
        busiest = view.tenants(limit=1).busiest if tenants else ()
    if as_json:
        print_json(msgspec.structs.asdict(found) | {"tenants": busiest} if tenants else found)
    else:
        used = {True: f"yes, by process {found.process}", False: "no", None: None}[found.in_use]
        doubt = found.in_doubt
        places = None if doubt.spare_places is None else f"{doubt.spare_places_taken:,} of {doubt.spare_places:,} taken"
        figures = {"keys_in_doubt": doubt.keys, "spare_places": places}
        told = msgspec.structs.asdict(found) | {
            "destinations": _counts(found.destinations),
            "replication": _replication(found),
        }
        print_fields({**told, "in_use": used, "process": None, "in_doubt": None, "pause_ends": None, **figures})
        if found.pause_ends:
            say("")
            say("pauses that end by themselves:")
            print_table(("of", "name", "until"), [(it.kind, it.name, it.until) for it in found.pause_ends], None)
        if doubt.longest:
            most = "" if doubt.is_complete else " (among the 50,000 messages that were accepted first)"
            say("")
            say(f"without success for longest{most}:")
            rows = [
                (it.key, it.id, _span(it.since, found.at), it.fails, _next_try(it, found), it.last_error)
                for it in doubt.longest
            ]
            print_table(("key", "id", "fails for", "sends", "next try", "last error"), rows, None)
        _print_destinations(found)
        print_busiest(busiest)


def print_busiest(tenants: "Sequence[TenantSeen]") -> None:
    """Print a table of them, if there are any."""
    if tenants:
        say("")
        say("the busiest tenants:")
        print_tenants(tenants, None)


def print_tenants(tenants: "Sequence[TenantSeen]", cursor: str | None) -> None:
    """Print a table of them, and say how to go on."""
    own = ("concurrency", "rate", "weight")
    rows = [
        (it.name, _paused(it) if it.paused else None, it.waiting, it.overdue, it.failing, it.out, _part_late(it),
         _late(it.lateness_ms), it.failed_attempts or None, *map(it.settings.get, own))
        for it in tenants
    ]  # fmt: skip
    figures = ("waiting", "overdue", "failing", "out", "late", "mean lateness", "failed")
    print_table(("name", "state", *figures, *own), rows, cursor)


def _print_destinations(found: "StoreStatus") -> None:
    destinations = found.destinations.first
    if not destinations:
        return
    more = found.destinations.count - len(destinations)
    say("")
    say(f"destinations, and {more:,} more:" if more else "destinations:")
    print_destinations(destinations, found.at, None)


def print_destinations(destinations: "Sequence[DestinationSeen]", at: str, cursor: str | None) -> None:
    """Print a table of them as they were at this time, and say how to go on."""
    rows = [
        (
            it.name,
            _state(it, at),
            it.waiting,
            it.overdue,
            _part_late(it),
            it.rate,
            _retry(it, at),
            it.paused_reason or it.last_error,
        )
        for it in destinations
    ]
    print_table(("name", "state", "waiting", "overdue", "late", "rate", "next try", "last error"), rows, cursor)


def _replication(found: "StoreStatus") -> str | None:
    if (it := found.replication) is None:
        return None
    parts = [f"epoch {it.epoch:,}, taken by {it.owner}"]
    if it.role is not None:
        parts += [it.role, f"{it.lag_s:,.1f} s behind: {it.lag_rows:,} groups, {it.lag_bytes:,} bytes"]
        parts.append("no base" if it.last_base is None else f"last base {it.last_base}")
    if it.trouble is not None:
        parts.append(it.trouble)
    return "; ".join(parts)


def _counts(found: "Destinations") -> str | None:
    if not found.count:
        return None
    parts = [f"{count:,} {what}" for count, what in ((found.down, "down"), (found.paused, "paused")) if count]
    return ", ".join([f"{found.count:,}", *parts])


def _state(found: "DestinationSeen", at: str) -> str:
    since = found.paused_since or found.down_since
    state = found.state if since is None else f"{found.state} for {_span(since, at)}"
    state = state if found.paused_until is None else _paused(found)
    return state if found.failing_since is None else f"{state}, fails for {_span(found.failing_since, at)}"


def _paused(found: "DestinationSeen | TenantSeen") -> str:
    return "paused" if found.paused_until is None else f"paused until {found.paused_until}"


def _part_late(found: "DestinationSeen | TenantSeen") -> str | None:
    return f"{found.late:,} of {found.delivered:,}" if found.delivered else None


def _retry(found: "DestinationSeen", at: str) -> str | None:
    if found.next_try is None or found.state != "sending":
        return None
    return "soon" if found.next_try <= at else f"in {_span(at, found.next_try)}"


def _next_try(key: "KeyInDoubt", found: "StoreStatus") -> str:
    if key.is_paused or found.paused_since is not None:
        return "paused"
    return "soon" if key.next_try <= found.at else f"in {_span(found.at, key.next_try)}"


def _span(start: str, end: str) -> str:
    """The time between two times in RFC 3339, short enough for a narrow terminal."""
    seconds = max(0, round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()))
    for unit, length_s in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds // length_s:,} {unit}"
    return f"{seconds} s"


def _late(lateness_ms: float | None) -> str | None:
    return None if lateness_ms is None else f"{lateness_ms:,.3f} ms"


def print_json(found: Any) -> None:
    """Print JSON, on several lines."""
    import msgspec

    say_lines(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def print_fields(found: Mapping[str, Any]) -> None:
    """Print a line for each field with a value."""
    import msgspec

    from tickwheel.pages.text import shown_text

    for name, value in found.items():
        if isinstance(value, msgspec.Raw):
            value = bytes(value).decode()
        shown = value
        if isinstance(value, dict):
            shown = ", ".join(f"{part}: {count:,}" for part, count in value.items())
        elif isinstance(value, list):
            shown = ", ".join(value) or None
        if isinstance(shown, int) and not isinstance(shown, bool) and name != "seq":
            shown = f"{shown:,}"
        if shown is not None and shown is not False:
            say(f"{name.replace('_', ' ') + ':':17} {shown_text(str(shown), 2_000)}")


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[object, ...]], cursor: str | None) -> None:
    """Print a table, without the columns that have nothing, and say how to go on. On a terminal that is too narrow for
    it, print a block of lines for each row, as `print_fields`.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tickwheel.pages.text import shown_text

    # No style: `say_lines` would print its escape as text.
    table = Table(box=None, pad_edge=False, header_style="none")
    needed = -2  # between two columns are two spaces
    kept = [at for at in range(len(titles)) if not rows or any(row[at] is not None for row in rows)]
    shown = [["" if row[at] is None else shown_text(str(row[at]), 400) for at in kept] for row in rows]
    for at, *cells in zip(kept, *shown, strict=True):
        title = titles[at]
        table.add_column(title, overflow="fold", no_wrap=title in _WHOLE)
        widest = max(map(cell_len, [title, *cells]))
        needed += 2 + (widest if title in _WHOLE else min(widest, _READABLE))
    for row in shown:
        table.add_row(*map(Text, row))
    # If the output is no terminal, each row is one line, for grep and cut.
    console = Console() if sys.stdout.isatty() else Console(width=100_000)
    if rows and needed > console.width:
        for number, each in enumerate(rows):
            if number:
                say("")
            print_fields(dict(zip(titles, each, strict=True)))
    else:
        with console.capture() as printed:
            console.print(table)
        say_lines("\n".join(line.rstrip() for line in printed.get().splitlines()))
    if cursor is not None:
        say(f"There are more: --cursor {cursor}", err=True)
