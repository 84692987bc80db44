"""`tickwheel cancel`, `reschedule`, `event`, `requeue`, `again`, `pause` and so on: steer a store, or a server.

TARGET is the file of --store while nothing delivers from it, or the address of a server. Exit code 1: it was too late.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable
from contextlib import closing
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

import click

from tickwheel.commands.durations import Duration
from tickwheel.commands.options import ACCESS, GIVEN, access_of, full_text, time_of, together
from tickwheel.commands.paths import GivenPath
from tickwheel.commands.printing import errors_reported, say

if TYPE_CHECKING:
    from tickwheel.delivery.model.entries import Answer
    from tickwheel.delivery.queue.control import Control, HttpControl
    from tickwheel.delivery.sight import Action

_NONE_REQUEUED = (
    "No message matches that is a dead letter. What a record that could not be read says is to be given again."
)
_CANCEL_AGAIN = "If a message that was being sent is not accepted, it waits for its next try: cancel again."
_LIKE_AN_ADDRESS = re.compile(r"[^/]+:\d+/?|\w+://.*")
_TARGET = (
    "TARGET is a file of --store that nothing delivers from, or the address of a server, as http://127.0.0.1:7400."
)

_existing = GivenPath(exists=True, dir_okay=False, path_type=Path)
_access_options = together(
    click.argument("target", metavar="TARGET", type=GIVEN),
    click.option("--token-file", metavar="FILE", type=_existing, help="The token that the server wants."),
    click.option("--tls-ca", metavar="FILE", type=_existing, help="The authority that has signed its certificate."),
    click.option("--tls-cert", metavar="FILE", type=_existing, help="The certificate of this client."),
    click.option("--tls-key", metavar="FILE", type=_existing, help="Its key, if it is not in the same file."),
)


def targeted(command: Callable[..., None], target_is: str = _TARGET) -> click.Command:
    """Add TARGET, which `target_is` explains in the help, and the options for the token and the TLS of a server."""

    @_access_options
    @wraps(command)
    def run(target: str, **options: Any) -> None:
        access = {name: options.pop(name) for name in ACCESS}
        with errors_reported():
            command(target, access, **options)

    text = f"{inspect.getdoc(command)}\n\n{target_is}"
    return click.command(command.__name__.rstrip("_").replace("_", "-"), help=text)(run)


_of_one = together(
    click.option("--id", "id_", metavar="ID", required=True, callback=full_text, help="The id of the message."),
    click.option("--key", metavar="KEY", callback=full_text, help="The key of the message, if it has one."),
)
_of_many = together(
    click.option("--id", "id_", metavar="ID", callback=full_text,
                 help="The message with this id, and with --key if it has one."),
    click.option("--key", metavar="KEY", callback=full_text, help="Without --id: all messages of this key."),
    click.option("--key-prefix", metavar="TEXT", callback=full_text, help="All messages whose key begins so."),
    click.option("--due-from", metavar="TIME", callback=time_of, help="Only those due then or later."),
    click.option("--due-before", metavar="TIME", callback=time_of, help="Only those due before that."),
    click.option("--destination", metavar="NAME", callback=full_text, help="Only those that name this destination."),
    click.option("--tenant", metavar="NAME", callback=full_text, help="Only those that name this tenant."),
    click.option("--all", "is_all", is_flag=True, help="All messages."),
)  # fmt: skip
_of_key = together(
    click.option("--key", metavar="KEY", callback=full_text, help="Only messages of this key."),
    click.option("--destination", metavar="NAME", callback=full_text, help="Only messages that name this destination."),
    click.option("--tenant", metavar="NAME", callback=full_text, help="Only messages that name this tenant."),
)


@targeted
@_of_many
def cancel(target: str, access: dict[str, Any], **which: Any) -> None:
    """Cancel a message, or all that match: they are not delivered."""
    if (done := _change("cancel", target, access, **which)) is not None:
        say(f"cancelled {done.changed:,}; being sent in that moment: {done.too_late:,}")
        if done.too_late:
            say(_CANCEL_AGAIN, err=True)


@targeted
@_of_many
def requeue(target: str, access: dict[str, Any], **which: Any) -> None:
    """Try a dead letter anew, or all that match: with all attempts, marked as redelivered."""
    if (done := _change("requeue", target, access, **which)) is not None:
        say(f"requeued {done.changed:,}")
        if not done.changed:
            say(_NONE_REQUEUED, err=True)


def _change(
    operation: str, target: str, access: dict[str, Any], id_: str | None, key: str | None, is_all: bool, **which: Any
) -> "Action | None":
    """Ask about one message and print the answer; or act on all that match, and return what was done."""
    from tickwheel.delivery.model.bulk import act_of
    from tickwheel.delivery.model.entries import Requeue
    from tickwheel.delivery.model.message import Cancel
    from tickwheel.delivery.queue.control import wait

    with closing(control_of(target, access)) as control:
        if id_ is None:
            return wait(control, act_of(operation, key=key, all=is_all, **which, how_all="--all"))
        if is_all or any(which.values()):
            raise click.UsageError("--id names one message: leave out the filters and --all")
        _say(id_, operation, control.ask((Cancel if operation == "cancel" else Requeue)(id_, key)))
        return None


@targeted
@_of_one
@click.option("--due", metavar="TIME", callback=time_of, help="RFC 3339, or epoch milliseconds.")
@click.option(
    "--delay", metavar="DURATION", type=Duration("ms"), help="From now, as 5m. A number alone is milliseconds."
)
def reschedule(
    target: str, access: dict[str, Any], id_: str, key: str | None, due: int | None, delay: float | None
) -> None:
    """Give a message that waits another due time."""
    from tickwheel._native import due_ms_of
    from tickwheel.delivery.model.entries import Reschedule

    if (due is None) == (delay is None):
        raise click.UsageError("say when it is due: either --due TIME or --delay DURATION")
    due_ms = due if due is not None else due_ms_of(None, delay)
    with closing(control_of(target, access)) as control:
        _say(id_, "reschedule", control.ask(Reschedule(id_, key, due_ms)))


def _json(_ctx: click.Context, _param: click.Parameter, value: str | None) -> bytes | None:
    if value is None:
        return None
    try:
        json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"it is no JSON: {error}") from None
    return value.encode()


@targeted
@click.argument("name", metavar="NAME")
@click.option("--key", metavar="KEY", required=True, callback=full_text, help="The key of the messages that wait.")
@click.option(
    "--id",
    "id_",
    metavar="ID",
    callback=full_text,
    help="The id of the event. A repeat needs the same one. [default: a new one]",
)
@click.option("--payload", metavar="JSON", callback=_json, help="What the receivers of the messages get with it.")
@click.option(
    "--remember",
    metavar="DURATION",
    type=Duration("ms"),
    help="How long it also lets go messages that come later, as 1h.",
)
def event(
    target: str,
    access: dict[str, Any],
    name: str,
    key: str,
    id_: str | None,
    payload: bytes | None,
    remember: float | None,
) -> None:
    """Let go the messages of a key that wait for the event NAME: they are due now.

    The id of the event is printed. The same event again, with the same id, lets nothing go, and has its first count.
    """
    import msgspec

    from tickwheel.delivery.model.entries import Event

    id_ = id_ or str(uuid4())
    given = None if payload is None else msgspec.Raw(payload)
    happened = Event(id_, key, name, given, None if remember is None else round(remember))
    with closing(control_of(target, access)) as control:
        say(f"{id_}: let go {control.event(happened):,}")


@targeted
@click.option("--key", metavar="KEY", required=True, callback=full_text, help="The key of the event.")
@click.option("--id", "id_", metavar="ID", required=True, callback=full_text, help="The id of the event.")
def forget_event(target: str, access: dict[str, Any], key: str, id_: str) -> None:
    """Remember an event no more: it lets go no further message."""
    from tickwheel.delivery.model.entries import ForgetEvent

    with closing(control_of(target, access)) as control:
        _say(id_, "forget_event", control.ask(ForgetEvent(id_, key)))


@targeted
@click.option("--key", metavar="KEY", callback=full_text, help="The key.")
@click.option("--id", "id_", metavar="ID", callback=full_text, help="Of a message without a key, its id.")
def again(target: str, access: dict[str, Any], key: str | None, id_: str | None) -> None:
    """Try a failing key at once, one time: its next message waits no more for its next attempt.

    From a file, the next run tries it at once.
    """
    from tickwheel.delivery.model.entries import Again

    asked = Again(id_, key)
    with closing(control_of(target, access)) as control:
        _say(key or id_ or "", "again", control.ask(asked))


@targeted
@_of_key
@click.option("--until", metavar="TIME", callback=time_of, help="It ends by itself then: RFC 3339, or epoch ms.")
def pause(target: str, access: dict[str, Any], until: int | None, **names: str | None) -> None:
    """Send nothing until it is resumed, also after a restart. Messages are accepted, and wait."""
    pause_or_resume(target, access, is_paused=True, until_ms=until, **names)


@targeted
@_of_key
def resume(target: str, access: dict[str, Any], **names: str | None) -> None:
    """Send again what is due."""
    pause_or_resume(target, access, is_paused=False, until_ms=None, **names)


def pause_or_resume(
    target: str, access: dict[str, Any], *, is_paused: bool, until_ms: int | None, **names: str | None
) -> None:
    """Pause all, a key, a destination or a tenant, or resume it, and say so. Exit code 1: no such destination."""
    from tickwheel._native import rfc_3339
    from tickwheel.delivery.model.entries import Answer, Pause

    with closing(control_of(target, access)) as control:
        if control.ask(Pause(is_paused, **names, until_ms=until_ms)) is Answer.UNKNOWN:
            end_without("destination", str(names["destination"]))
    what, more = "", ""
    for kind, name in names.items():
        if name is not None:
            what = f"the {kind} {repr(name) if kind == 'key' else name} is "
            more = f" --{kind} {quote(name)}"
    end = "" if until_ms is None else f" until {rfc_3339(until_ms)}"
    paused = f"paused{end}. To go on: tickwheel resume {target}{more}"
    say(f"{target}: {what}{paused if is_paused else 'resumed.'}")


def set_named(target: str, access: dict[str, Any], kind: type[Any], name: str, **settings: Any) -> None:
    """Set a destination or a tenant, and say so. Settings that are `None` are left out. Errors: `WrongUsage`."""
    import msgspec

    from tickwheel._native import read_records
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.model.entries import Answer, SetTenant
    from tickwheel.delivery.model.operations import reply

    given = {each: value for each, value in settings.items() if value is not None}
    asked = kind(name, msgspec.json.encode(given).decode())
    read_records(asked, format="item")  # checks it here, so that a server's answer about HTTP is never shown
    with closing(control_of(target, access)) as control:
        answer = control.ask(asked)
    if answer is Answer.REFUSED:
        operation = "set_tenant" if kind is SetTenant else "set_destination"
        raise WrongUsage(f"{name} is not set: {reply(operation, answer).sentence}")
    if control.warning:
        say(f"Warning: {control.warning}: each send is refused", err=True)
    say(f"{name}: {'changed' if answer is Answer.REPLACED else 'set'}.")


def end_without(kind: str, name: str) -> NoReturn:
    """Say that there is no such destination or tenant, and end with exit code 1."""
    from tickwheel.delivery.model.entries import Answer, no_destination
    from tickwheel.delivery.model.operations import reply

    of_tenant = f"{name}: {reply('remove_tenant', Answer.UNKNOWN).sentence}"
    say(str(no_destination(name)) if kind == "destination" else of_tenant, err=True)
    sys.exit(1)


def control_of(target: str, access: dict[str, Any]) -> "Control":
    """What changes the store, or the server. Errors: `WrongUsage`."""
    from tickwheel.delivery.queue.control import StoreControl

    return server_of(target, access) or StoreControl(Path(target))


def server_of(target: str, access: dict[str, Any], retry_s: float = 0) -> "HttpControl | None":
    """What asks the server at this address; `None` if it is a file. Errors: `WrongUsage`."""
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.queue.control import HttpControl

    if not is_address(target):
        if any(access.values()):
            raise WrongUsage(f"{target} is a file: a token and certificates are for a server")
        return None
    token, tls = access_of(access)
    return HttpControl(target, token, tls.context() if tls else None, retry_s=retry_s)


def is_address(target: str) -> bool:
    """Errors: `click.UsageError` if it looks like an address, and is none."""
    if target.lower().startswith(("http://", "https://")):
        return True
    if _LIKE_AN_ADDRESS.fullmatch(target) and not Path(target).exists():
        raise click.UsageError(f"{target!r:.200} is no file, and an address begins with http:// or https://")
    return False


def _say(id_: str, operation: str, answer: "Answer") -> None:
    """Print the answer, by the table of operations. The first answer of an operation there is the wanted one."""
    from tickwheel.delivery.model.operations import REPLIES, reply

    wanted, meaning = next(iter(REPLIES[operation])), reply(operation, answer)
    if answer is wanted:
        say(f"{id_}: {answer}")
    elif meaning.exit_code == 0:
        say(f"{id_}: {meaning.sentence}")
    else:
        say(f"{id_}: not {wanted}: {meaning.sentence}", err=True)
        sys.exit(meaning.exit_code)
