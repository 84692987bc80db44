"""`tickwheel cancel`, `reschedule`, `requeue`, `again`, `pause`, `resume`: steer a store, or a server.

TARGET is the file of --store while nothing delivers from it, or the address of a server. Exit code 1: it was too late.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tickwheel.commands.durations import Duration
from tickwheel.commands.options import full_text, time_of
from tickwheel.commands.printing import say

if TYPE_CHECKING:
    from tickwheel.delivery.model.entries import Act, Answer
    from tickwheel.delivery.queue.control import Control, HttpControl

_NONE_REQUEUED = (
    "No message matches that is a dead letter. What a record that could not be read says is to be given again."
)
_CANCEL_AGAIN = "If a message that was being sent is not accepted, it waits for its next try: cancel again."
_LIKE_AN_ADDRESS = re.compile(r"[^/]+:\d+/?|\w+://.*")

_existing = click.Path(exists=True, dir_okay=False, path_type=Path)


def targeted(command: Callable[..., None]) -> click.Command:
    """Add TARGET, and the options for the token and the TLS of a server."""

    @click.argument("target", metavar="TARGET")
    @click.option("--token-file", metavar="FILE", type=_existing, help="The token that the server wants.")
    @click.option("--tls-ca", metavar="FILE", type=_existing, help="The authority that has signed its certificate.")
    @click.option("--tls-cert", metavar="FILE", type=_existing, help="The certificate of this client.")
    @click.option("--tls-key", metavar="FILE", type=_existing, help="Its key, if it is not in the same file.")
    @wraps(command)
    def run(target: str, **options: Any) -> None:
        access = {name: options.pop(name) for name in ("token_file", "tls_ca", "tls_cert", "tls_key")}
        with _errors_reported():
            command(target, access, **options)

    return click.command(command.__name__.rstrip("_"))(run)


@contextmanager
def _errors_reported() -> Iterator[None]:
    from tickwheel.delivery.base.errors import BadRecord, DeliveryFailed, WrongUsage

    try:
        yield
    except (WrongUsage, BadRecord) as error:
        raise click.UsageError(str(error)) from error
    except DeliveryFailed as error:
        say(f"Failed: {error}.", err=True)
        sys.exit(3)


def _of_one(command: Any) -> Any:
    command = click.option("--key", metavar="KEY", callback=full_text, help="The key of the message, if it has one.")(
        command
    )
    return click.option("--id", "id_", metavar="ID", required=True, callback=full_text, help="The id of the message.")(
        command
    )


def _of_many(command: Any) -> Any:
    for option in reversed(
        [
            click.option(
                "--id",
                "id_",
                metavar="ID",
                callback=full_text,
                help="The message with this id, and with --key if it has one.",
            ),
            click.option("--key", metavar="KEY", callback=full_text, help="Without --id: all messages of this key."),
            click.option("--key-prefix", metavar="TEXT", callback=full_text, help="All messages whose key begins so."),
            click.option("--due-from", metavar="TIME", callback=time_of, help="Only those due then or later."),
            click.option("--due-before", metavar="TIME", callback=time_of, help="Only those due before that."),
            click.option("--all", "is_all", is_flag=True, help="All messages."),
        ]
    ):
        command = option(command)
    return command


@targeted
@_of_many
def cancel(target: str, access: dict[str, Path | None], id_: str | None, key: str | None, **which: Any) -> None:
    """Cancel a message, or all that match: they are not delivered.

    TARGET is a file of --store that nothing delivers from, or the address of a server, as http://127.0.0.1:7400.
    """
    from tickwheel.delivery.model.message import Cancel

    with _control(target, access) as control:
        if id_ is not None:
            _alone(which)
            _say(id_, "cancel", control.ask(Cancel(id_, key)))
            return
        done = control.wait(_act("cancel", key, **which))
    say(f"cancelled {done.changed:,}; being sent in that moment: {done.too_late:,}")
    if done.too_late:
        say(_CANCEL_AGAIN, err=True)


@targeted
@_of_many
def requeue(target: str, access: dict[str, Path | None], id_: str | None, key: str | None, **which: Any) -> None:
    """Try a dead letter anew, or all that match: with all attempts, marked as redelivered.

    TARGET is a file of --store that nothing delivers from, or the address of a server, as http://127.0.0.1:7400.
    """
    from tickwheel.delivery.model.entries import Requeue

    with _control(target, access) as control:
        if id_ is not None:
            _alone(which)
            _say(id_, "requeue", control.ask(Requeue(id_, key)))
            return
        done = control.wait(_act("requeue", key, **which))
    say(f"requeued {done.changed:,}")
    if not done.changed:
        say(_NONE_REQUEUED, err=True)


@targeted
@_of_one
@click.option("--due", metavar="TIME", callback=time_of, help="RFC 3339, or epoch milliseconds.")
@click.option(
    "--delay", metavar="DURATION", type=Duration("ms"), help="From now, as 5m. A number alone is milliseconds."
)
def reschedule(
    target: str, access: dict[str, Path | None], id_: str, key: str | None, due: int | None, delay: float | None
) -> None:
    """Give a message that waits another due time.

    TARGET is a file of --store that nothing delivers from, or the address of a server, as http://127.0.0.1:7400.
    """
    from tickwheel._native import due_ms_of
    from tickwheel.delivery.model.entries import Reschedule

    if (due is None) == (delay is None):
        raise click.UsageError("say when it is due: either --due TIME or --delay DURATION")
    due_ms = due if due is not None else due_ms_of(None, delay)
    with _control(target, access) as control:
        _say(id_, "reschedule", control.ask(Reschedule(id_, key, due_ms)))


@targeted
@click.option("--key", metavar="KEY", callback=full_text, help="The key.")
@click.option("--id", "id_", metavar="ID", callback=full_text, help="Of a message without a key, its id.")
def again(target: str, access: dict[str, Path | None], key: str | None, id_: str | None) -> None:
    """Try a failing key at once, one time: its next message waits no more for its next attempt.

    TARGET is a file of --store that nothing delivers from, or the address of a server, as http://127.0.0.1:7400. From
    a file, the next run tries it at once.
    """
    from tickwheel.delivery.model.entries import Again

    asked = Again(id_, key)
    with _control(target, access) as control:
        _say(key or id_ or "", "again", control.ask(asked))


@targeted
@click.option("--key", metavar="KEY", callback=full_text, help="Only messages of this key.")
def pause(target: str, access: dict[str, Path | None], key: str | None) -> None:
    """Send nothing until it is resumed, also after a restart. Messages are accepted, and wait.

    TARGET is a file of --store that nothing delivers from, or the address of a server, as http://127.0.0.1:7400.
    """
    _pause(target, access, key, is_paused=True)
    what, more = ("", "") if key is None else (f"the key {key!r} is ", f" --key {_quoted(key)}")
    say(f"{target}: {what}paused. To go on: tickwheel resume {target}{more}")


@targeted
@click.option("--key", metavar="KEY", callback=full_text, help="Only messages of this key.")
def resume(target: str, access: dict[str, Path | None], key: str | None) -> None:
    """Send again what is due.

    TARGET is a file of --store that nothing delivers from, or the address of a server, as http://127.0.0.1:7400.
    """
    _pause(target, access, key, is_paused=False)
    say(f"{target}: resumed." if key is None else f"{target}: the key {key!r} is resumed.")


def _pause(target: str, access: dict[str, Path | None], key: str | None, *, is_paused: bool) -> None:
    from tickwheel.delivery.engine.upkeep import pause_store, resume_store
    from tickwheel.delivery.model.entries import Pause

    if is_address(target):
        with _control(target, access) as control:
            control.ask(Pause(is_paused, key))
    else:
        (pause_store if is_paused else resume_store)(target, key)


def _control(target: str, access: dict[str, Path | None]) -> "Control":
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.queue.control import StoreControl

    if is_address(target):
        return server_of(target, access)
    if any(access.values()):
        raise WrongUsage(f"{target} is a file: a token and certificates are for a server")
    return StoreControl(Path(target))


def server_of(address: str, access: dict[str, Path | None]) -> "HttpControl":
    """What asks this server. Errors: `WrongUsage`."""
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.queue.control import HttpControl
    from tickwheel.delivery.serve.client_tls import ClientTls, context_of
    from tickwheel.delivery.serve.tokens import read_token

    token = read_token(access["token_file"]) if access["token_file"] else None
    context = None
    if access["tls_ca"]:
        ClientTls.read(access["tls_ca"], access["tls_cert"], access["tls_key"])  # its errors name the option
        context = context_of(access["tls_ca"], access["tls_cert"], access["tls_key"])
    elif access["tls_cert"] or access["tls_key"]:
        raise WrongUsage("--tls-cert and --tls-key need --tls-ca FILE, the authority of the server's certificate")
    return HttpControl(address, token, context)


def is_address(target: str) -> bool:
    """Errors: `click.UsageError` if it looks like an address, and is none."""
    if target.lower().startswith(("http://", "https://")):
        return True
    if _LIKE_AN_ADDRESS.fullmatch(target) and not Path(target).exists():
        raise click.UsageError(f"{target!r:.200} is no file, and an address begins with http:// or https://")
    return False


def _act(kind: str, key: str | None, *, is_all: bool, **which: Any) -> "Act":
    from tickwheel.delivery.model.bulk import act_of

    return act_of(kind, key=key, all=is_all, **which, how_all="--all")


def _alone(which: dict[str, Any]) -> None:
    if any(which.values()):
        raise click.UsageError("--id names one message: leave out the filters and --all")


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


def _quoted(text: str) -> str:
    from shlex import quote

    return quote(text)
