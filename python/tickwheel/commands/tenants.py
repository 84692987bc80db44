"""`tickwheel tenants`: what each tenant may do (D24), of a store at rest or of a server."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import click

from tickwheel.commands.control import control_of, end_without, pause_or_resume, set_named, targeted
from tickwheel.commands.printing import say
from tickwheel.commands.sight import (
    as_json,
    looks,
    of_page,
    print_busiest,
    print_fields,
    print_json,
    print_table,
    view_of,
)


@click.group()
def tenants() -> None:
    """Set, list, show, remove, pause or resume the tenants that messages name."""


_name = click.argument("name", metavar="NAME")
_looks = partial(looks, group=tenants)


def _command(command: Callable[..., None]) -> click.Command:
    made = targeted(command)
    tenants.add_command(made)
    return made


@_command
@_name
@click.option(
    "--concurrency", metavar="N", type=int, help="At most so many messages out at a time, at all destinations."
)
@click.option("--rate", metavar="N/s", help="At most so many messages, as 100/s, 30/min, 500/h or 1/day.")
@click.option("--weight", metavar="N", type=int, help="So many messages in each of its turns, 1 to 100. By default 1.")
@click.option("--paused", is_flag=True, default=None, help="Pause it too. Without it a pause stays, and none begins.")
def set_(target: str, access: dict[str, Any], name: str, **settings: Any) -> None:
    """Set what the tenant NAME may do, whether it has messages or not.

    What is left out is as for all tenants, whatever it was before. Only a pause stays.
    """
    from tickwheel.delivery.model.entries import SetTenant

    set_named(target, access, SetTenant, name, **settings)


@_command
@_name
def pause(target: str, access: dict[str, Any], name: str) -> None:
    """Send nothing of the tenant NAME until it is resumed: as tickwheel pause --tenant NAME."""
    pause_or_resume(target, access, is_paused=True, tenant=name)


@_command
@_name
def resume(target: str, access: dict[str, Any], name: str) -> None:
    """Send what is due of the tenant NAME again: as tickwheel resume --tenant NAME."""
    pause_or_resume(target, access, is_paused=False, tenant=name)


@_command
@_name
def remove(target: str, access: dict[str, Any], name: str) -> None:
    """Give the tenant NAME the usual limits again, and end its pause. Exit code 1: it was not set or paused.

    Its messages stay.
    """
    from tickwheel.delivery.model.entries import Answer, RemoveTenant

    with closing(control_of(target, access)) as control:
        if control.ask(RemoveTenant(name)) is Answer.UNKNOWN:
            end_without("tenant", name)
    say(f"{name}: removed.")


@_looks
@of_page
@as_json
def list_(target: str, access: dict[str, Any], limit: int, cursor: str | None, as_json: bool) -> None:
    """List the tenants that were set or paused, in the order of their names, and the busiest of all.

    Only a server knows the busiest.
    """
    with view_of(target, access) as view:
        page = view.tenants(limit=limit, cursor=cursor)
    if as_json:
        print_json(page)
        return
    named = ("concurrency", "rate", "weight")
    rows = [(it.name, "paused" if it.paused else None, *map(it.settings.get, named)) for it in page.tenants]
    print_table(("name", "state", *named), rows, page.next)
    print_busiest(page.busiest)


@_looks
@_name
@as_json
def show(target: str, access: dict[str, Any], name: str, as_json: bool) -> None:
    """Show the tenant NAME: its settings and what waits. Exit code 1: it was not set or paused.

    Only a server knows what waits.
    """
    import msgspec

    with view_of(target, access) as view:
        found = view.tenant(name)
    if found is None:
        end_without("tenant", name)
    if as_json:
        print_json(found)
        return
    print_fields({**msgspec.structs.asdict(found), "settings": None, **found.settings})
