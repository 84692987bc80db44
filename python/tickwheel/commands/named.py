"""What `tickwheel destinations` and `tickwheel tenants` share: `list` and `show`."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from tickwheel.commands.control import end_without
from tickwheel.commands.sight import as_json, looks, of_page, print_fields, print_json, view_of

name_of_one = click.argument("name", metavar="NAME")


def add_shared(
    group: click.Group,
    kind: str,
    texts: tuple[str, str],
    print_page: Callable[[Any], None],
    told: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> None:
    """Add them to the commands of a `kind`, with their help texts. `told`: how settings are printed."""

    def list_(target: str, access: dict[str, Any], limit: int, cursor: str | None, as_json: bool) -> None:
        with view_of(target, access) as view:
            page = getattr(view, f"{kind}s")(limit=limit, cursor=cursor)
        (print_json if as_json else print_page)(page)

    def show(target: str, access: dict[str, Any], name: str, as_json: bool) -> None:
        import msgspec

        with view_of(target, access) as view:
            found = getattr(view, kind)(name)
        if found is None:
            end_without(kind, name)
        if as_json:
            print_json(found)
        else:
            print_fields({**msgspec.structs.asdict(found), "settings": None, **told(found.settings)})

    list_.__doc__, show.__doc__ = texts
    looks(of_page(as_json(list_)), group)
    looks(name_of_one(as_json(show)), group)
