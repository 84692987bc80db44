"""`tickwheel tenants`: what each tenant may do (D24), of a store at rest or of a server."""

from contextlib import closing
from typing import Any

import click

from tickwheel.commands.control import control_of, end_without, set_named, targeted
from tickwheel.commands.named import add_shared, name_of_one
from tickwheel.commands.printing import say
from tickwheel.commands.sight import print_busiest, print_tenants


@click.group()
def tenants() -> None:
    """Set, list, show or remove the tenants that messages name."""


@tenants.add_command
@targeted
@name_of_one
@click.option("--concurrency", metavar="N", type=int, help="At most so many messages out at a time, in all.")
@click.option("--rate", metavar="N/s", help="At most so many messages, as 100/s, 30/min, 500/h or 1/day.")
@click.option("--weight", metavar="N", type=int, help="So many messages in each of its turns, 1 to 100. By default 1.")
@click.option("--paused", is_flag=True, default=None, help="Pause it too. Without it a pause stays, and none begins.")
def set_(target: str, access: dict[str, Any], name: str, **settings: Any) -> None:
    """Set what the tenant NAME may do, whether it has messages or not.

    What is left out is as for all tenants, whatever it was before. Only a pause stays.
    """
    from tickwheel.delivery.model.entries import SetTenant

    set_named(target, access, SetTenant, name, **settings)


@tenants.add_command
@targeted
@name_of_one
def remove(target: str, access: dict[str, Any], name: str) -> None:
    """Give the tenant NAME the usual limits again, and end its pause. Exit code 1: it was not set or paused.

    Its messages stay.
    """
    from tickwheel.delivery.model.entries import Answer, RemoveTenant

    with closing(control_of(target, access)) as control:
        if control.ask(RemoveTenant(name)) is Answer.UNKNOWN:
            end_without("tenant", name)
    say(f"{name}: removed.")


def _print(page: Any) -> None:
    print_tenants(page.tenants, page.next)
    print_busiest(page.busiest)


_TEXTS = (
    "List the tenants that were set or paused, by name, and the busiest of all, which only a server knows.",
    "Show the tenant NAME: its settings, and what waits, which only a server knows. Exit code 1: it was not set.",
)
add_shared(tenants, "tenant", _TEXTS, _print)
