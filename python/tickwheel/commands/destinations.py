"""`tickwheel destinations`: the webhooks that messages name (D23), of a store at rest or of a server."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from tickwheel.commands.control import control_of, end_without, set_named, targeted
from tickwheel.commands.durations import Duration
from tickwheel.commands.named import add_shared, name_of_one
from tickwheel.commands.options import FILE, waits_of
from tickwheel.commands.printing import say
from tickwheel.commands.sight import print_destinations


@click.group()
def destinations() -> None:
    """Set, list, show, remove or test the destinations that messages name."""


def _body(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Any:
    if value is None or value in ("envelope", "payload"):
        return value
    try:
        return json.loads(Path(value).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{value} is no file with JSON: {error}; or write envelope, or payload") from None


@destinations.add_command
@targeted
@name_of_one
@click.option(
    "--url",
    metavar="URL",
    required=True,
    help="Where messages go: http or https.",
)
@click.option(
    "--webhook-header",
    "headers",
    metavar="'NAME: VALUE'",
    multiple=True,
    help="Send this header too. VALUE may be env:VARIABLE or file:PATH, which are read here and now, so that "
    "no secret is on the command line. Repeat it for more.",
)
@click.option(
    "--webhook-secret-file",
    "secret_file",
    metavar="FILE",
    type=FILE,
    help="Sign each request by the secrets in FILE, each on its line. Without it those that are set stay.",
)
@click.option("--no-secrets", is_flag=True, help="Take the secrets away.")
@click.option(
    "--body",
    metavar="BODY",
    callback=_body,
    help="What is sent: envelope (as by --to), payload (the payload alone), or the path of a template in JSON.",
)
@click.option("--certificates", metavar="FILE", type=FILE, help="Check the receiver with these, in PEM.")
@click.option("--rate", metavar="N/s", help="At most so many messages, as 100/s, 30/min, 500/h or 1/day.")
@click.option("--concurrency", metavar="N", type=int, help="At most so many requests at a time.")
@click.option("--spare", metavar="N", type=int, help="So many more that take long, or whose key is in doubt.")
@click.option(
    "--waits",
    "waits_s",
    metavar="DURATION,...",
    callback=waits_of,
    help="The waits after attempts that were not accepted, as 5s,5m,30m. The last one is repeated.",
)
@click.option(
    "--sink-timeout", "sink_timeout_s", metavar="DURATION", type=Duration(), help="The longest wait for an answer."
)
@click.option(
    "--disable-after",
    "disable_after_days",
    metavar="DURATION",
    type=Duration("d"),
    help="Pause it by itself after it has failed for so long without a success.",
)
@click.option("--paused", is_flag=True, default=None, help="Pause it too. Without it a pause stays, and none begins.")
def set_(
    target: str,
    access: dict[str, Any],
    name: str,
    headers: Sequence[str],
    secret_file: Path | None,
    no_secrets: bool,
    certificates: Path | None,
    **settings: Any,
) -> None:
    """Set the destination NAME, or change it.

    What is left out is as for all others, whatever it was before. Only secrets stay, and a pause.
    """
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.model.entries import SetDestination
    from tickwheel.delivery.sinks import Webhook

    if no_secrets and secret_file:
        raise click.UsageError("--no-secrets takes the secrets away, and --webhook-secret-file sets some: give one")
    webhook = Webhook.read(headers, secret_file) or Webhook()
    settings["headers"] = dict(webhook.headers)
    if len(settings["headers"]) < len(webhook.headers):
        raise WrongUsage("--webhook-header has a name twice: a destination sends each header once")
    settings["certificates"] = _text_of(certificates) if certificates else None
    settings["secrets"] = [*webhook.secrets] if secret_file or no_secrets else None
    set_named(target, access, SetDestination, name, **settings)


def _text_of(path: Path) -> str:
    from tickwheel.delivery.base.errors import WrongUsage

    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{path} can't be read: {error}") from error


@destinations.add_command
@targeted
@name_of_one
@click.option(
    "--messages",
    type=click.Choice(["dead"]),
    help="Make dead letters of its messages. Without it, a destination with messages stays.",
)
def remove(target: str, access: dict[str, Any], name: str, messages: str | None) -> None:
    """Remove the destination NAME. Exit code 1: there is none.

    If TARGET is a file, its messages become dead letters in the next run.
    """
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.model.entries import Answer, RemoveDestination

    with closing(control_of(target, access)) as control:
        answer = control.ask(RemoveDestination(name, messages is not None))
    if answer is Answer.UNKNOWN:
        end_without("destination", name)
    if answer is Answer.REFUSED:
        raise WrongUsage(f"{name} has messages: wait for them, or give --messages dead")
    say(f"{name}: removed.")


@destinations.add_command
@targeted
@name_of_one
def test(target: str, access: dict[str, Any], name: str) -> None:
    """Send a test message to the destination NAME, and say what came back. Exit code 1: it was not accepted.

    From a file, addresses on private networks and on this machine are refused.
    """
    with closing(control_of(target, access)) as control:
        found = control.test(name)
    if found is None:
        end_without("destination", name)
    state, error, took_ms = found
    say(f"{name}: {state} after {took_ms:,.0f} ms" + (f": {error}" if error else "."), err=state != "accepted")
    sys.exit(state != "accepted")


def _print(page: Any) -> None:
    from tickwheel._native import rfc_3339

    print_destinations(page.destinations, rfc_3339(time.time_ns() // 1_000_000), page.next)


def _told(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = {"headers": [f"{each}: {value}" for each, value in settings.get("headers", {}).items()]}
    if not isinstance(body := settings.get("body", "envelope"), str):
        parts["body"] = [json.dumps(body, ensure_ascii=False)]
    parts["waits_s"] = [str(wait) for wait in settings.get("waits_s", ())]
    return {**settings, **parts}


_TEXTS = (
    "List the destinations, in the order of their names, with their states and what waits.",
    "Show the destination NAME: its state, what waits, and its settings but no secrets. Exit code 1: there is none.\n\n"
    "Only a server knows whether it is down, and the last error.",
)
add_shared(destinations, "destination", _TEXTS, _print, _told)
