"""What `deliver` and `serve` share: options, and the settings of a process that delivers."""

import ctypes
import gc
import re
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from tickwheel._native import SETTINGS
from tickwheel.commands.durations import Duration, duration_of, text_of
from tickwheel.commands.paths import GivenPath

_FILES = 8192
_M_MMAP_THRESHOLD = -3  # of `mallopt`
_LARGE = 256 << 10  # bytes that are asked of the system, and given back

if TYPE_CHECKING:
    from tickwheel.delivery.base.standard_error import StandardError
    from tickwheel.delivery.model.message import Columns
    from tickwheel.delivery.model.settings import Settings
    from tickwheel.delivery.observe.dead_letters import PutLetters
    from tickwheel.delivery.serve.client_tls import ClientTls
    from tickwheel.delivery.sinks import Opener

PATH: Final = GivenPath(path_type=Path)
FILE: Final = GivenPath(dir_okay=False, path_type=Path)
GIVEN: Final = GivenPath(readable=False)
"""A file, or what stands for one: an address of a server, a dash. As text."""

_Decorator: TypeAlias = Callable[[Any], Any]


def together(*options: _Decorator) -> _Decorator:
    """One decorator for several options, which the help shows in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class _Sink(click.types.StringParamType):
    """The address of a destination."""

    name = "sink"

    def without_secrets(self, value: str) -> str:
        """Without what may be a secret: a user and password, and all of a webhook's address but its host."""
        from tickwheel.delivery.sinks.addresses import without_user

        webhook = re.fullmatch(r"(?i)(https?:/*)(?:[^/?#\\]*@)?([^/?#\\]*/?)(.*)", value, re.DOTALL)
        if webhook is None:
            return without_user(value)
        kind, host, rest = webhook.groups()
        return f"{kind}{host}{'...' if rest else ''}"


class Database(click.types.StringParamType):
    """The address of a database, or of a proxy."""

    name = "address"

    def without_secrets(self, value: str) -> str:
        """Without user and password."""
        from tickwheel.delivery.sinks.addresses import without_user

        return without_user(value)


class Outbox(Database):
    """The address of an outbox. In an environment variable, a line each."""

    name = "outbox"
    envvar_list_splitter = "\n"


class _Network(click.types.StringParamType):
    """A network, or an address. In an environment variable, a line each."""

    name = "network"
    envvar_list_splitter = "\n"


class _Header(click.types.StringParamType):
    """NAME: VALUE. In an environment variable, a line each."""

    name = "header"
    envvar_list_splitter = "\n"

    def without_secrets(self, value: str) -> str:
        """The value only where it says where the value is."""
        name, colon, rest = value.partition(":")
        if not colon:
            return "..."
        return value if rest.strip().startswith(("env:", "file:")) else f"{name}: ..."


to_option = click.option(
    "--to",
    metavar="SINK",
    type=_Sink(),
    default="-",
    show_default=True,
    help="Destination: - (standard output), file:PATH, python:MODULE:FUNCTION or python:MODULE:CLASS, http(s)://..., "
    "named (each message names its destination), sqlite:PATH?table=T, postgresql://...?table=T, kafka://BROKERS/TOPIC.",
)

stdin_option = click.option(
    "--format",
    "stdin_format",
    type=click.Choice(["ndjson", "csv"]),
    help="Format of standard input (-); by default NDJSON.",
)
summary_option = click.option("--summary", metavar="FILE", type=FILE, help="Write the counts to FILE.")
dead_letters_option = click.option(
    "--dead-letters",
    metavar="FILE",
    type=FILE,
    help="Append bad records to FILE as NDJSON; by default they go to standard error.",
)


def _backoff(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[float, float]:
    try:
        first_s, longest_s = map(duration_of, value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not two durations: write FIRST,LONGEST, as 1s,5m.") from None
    return first_s, longest_s


def waits_of(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    """The callback of an option that takes waits: seconds."""
    try:
        return None if value is None else tuple(map(duration_of, value.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{error}; a number alone is seconds. It stands in {value!r}.") from None


def _statuses(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    try:
        return None if value is None else tuple(map(int, value.split(",")))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of statuses: write them as 422,403.") from None


def _default(name: str, unit: str = "s") -> str:
    """Of a setting that is a duration, as the engine has it."""
    default = SETTINGS[name][4]
    assert default is not None
    return text_of(default, unit)


_BACKOFF: Final = ",".join(map(_default, ("backoff's first wait", "backoff's longest wait")))


delivery_options = together(
    click.option("--order", type=click.Choice(["key", "global"]), default="key", show_default=True,
                 help="Order per key, or one order for all messages, one at a time."),
    click.option("--horizon", metavar="DURATION", type=Duration(), default=_default("horizon"),
                 show_default=True,
                 help="Messages due within this time are in memory. A number alone is seconds, here and "
                 "below."),
    click.option("--max-attempts", metavar="N", type=int, default=int(SETTINGS["max-attempts"][4] or 0),
                 show_default=True,
                 help="How many attempts of a message count before it goes to the dead letters. Refusals "
                 "count, and the answers 500 and 501 as long as other messages are accepted."),
    click.option("--backoff", metavar="FIRST,LONGEST", default=_BACKOFF, show_default=True, callback=_backoff,
                 help="How long a key waits after a send that was not accepted: at first, and at most; it "
                 "doubles each time."),
    click.option("--waits", metavar="DURATION,...", callback=waits_of,
                 help="The last wait is used again and again: the end of the list is not the end of the message, "
                 "unless there is --waits-end. These waits instead of --backoff, as 5s,5m,30m,2h."),
    click.option("--waits-end", is_flag=True,
                 help="With --waits: the end of the list is the end of the message, whatever the answers were. "
                 "If the attempt after the last wait is not accepted, it goes to the dead letters."),
    click.option("--unanswered-for", metavar="DURATION", type=Duration(), default=_default("unanswered-for"),
                 show_default=True,
                 help="How long a message that gets no answer is due, and its key without success, before it "
                 "goes to the dead letters; while the destination is down this does not count."),
    click.option("--final-status", metavar="STATUS,...", callback=_statuses,
                 help="Of a webhook: after one of these statuses, as 422,403, a message goes to the dead letters at "
                 "once, as after 410. A function raises tickwheel.delivery.Final."),
    click.option("--sink-timeout", metavar="DURATION", type=Duration(), default=_default("sink-timeout"),
                 show_default=True, help="The longest wait for the answer to an attempt."),
    click.option("--rate", metavar="N/s",
                 help="Send at most N messages in a second, on average, retries included; also N/min, N/h or "
                 "N/day, and 0.5/s. By default as fast as the destination takes them."),
    click.option("--concurrency", metavar="N", type=int,
                 help="At most N sends at a time, a hard limit unless --spare is given: requests of a webhook, "
                 "calls of a function or a coroutine function. By default 1024, 8 and 256, and spare places."),
    click.option("--spare", metavar="N", type=int,
                 help="Places beside these, for sends that take long and for keys whose last send was not "
                 "accepted. By default 1024 for webhooks and coroutine functions, at most a third of the open "
                 "files, and 64 for functions; 0 with --concurrency, and always for files and Kafka."),
    click.option("--tenant-concurrency", metavar="N", type=int,
                 help="At most N messages of one tenant are sent at a time, at all destinations together. Tenants are "
                 "what messages name by 'tenant'. By default they only take turns."),
    click.option("--tenant-rate", metavar="N/s",
                 help="Send at most N messages of one tenant in a second, as --rate for all."),
    click.option("--allow-address", "allow_address", metavar="CIDR", type=_Network(), multiple=True,
                 help="Let destinations that messages name be in this network, as 10.1.0.0/16, or at this address. "
                 "Without it, this machine and private networks are refused. Repeat it for more."),
    click.option("--proxy", metavar="URL", type=Database(),
                 help="Send webhooks through this proxy: http://HOST:PORT, http://USER:PASSWORD@HOST:PORT, or "
                 "env:VARIABLE or file:PATH, so that no password is on the command line. With env, what HTTPS_PROXY, "
                 "HTTP_PROXY, ALL_PROXY and NO_PROXY say, which count for nothing otherwise."),
    click.option("--destinations", metavar="FILE", type=FILE,
                 help="At the start, set the destinations in FILE (TOML): a table for each, with the fields of PUT "
                 "/destinations/{name}, where headers and secrets may be env:VARIABLE or file:PATH. What FILE does not "
                 "name stays."),
    click.option("--keep-ids", metavar="DURATION", type=Duration("d"), default=_default("keep-ids", "d"),
                 show_default=True,
                 help="How long the id of a message is kept after its outcome, to find duplicates. A number "
                 "alone is days."),
    click.option("--replicate-to", metavar="ADDRESS", type=Database(),
                 help="Keep what is accepted in this PostgreSQL too, before it is answered, so that another process "
                 "goes on where the disk is lost: postgresql://user@host/database?store=NAME, or env:VARIABLE or "
                 "file:PATH, so that no password is on the command line."),
)  # fmt: skip
"""The options that `deliver` and `serve` share; `settings_of` takes their values."""

_FIELDS: Final = {
    "horizon": "horizon_s",
    "backoff": "backoff_s",
    "waits": "waits_s",
    "unanswered_for": "unanswered_for_s",
    "sink_timeout": "sink_timeout_s",
    "final_status": "final_statuses",
    "allow_address": "allow_addresses",
    "keep_ids": "keep_ids_days",
}
"""The fields of `Settings` whose names say their units."""


webhook_options = together(
    click.option("--webhook-header", metavar="'NAME: VALUE'", type=_Header(), multiple=True,
                 help="With --to http(s)://...: send this header too. VALUE may be env:VARIABLE or file:PATH, "
                 "so that no secret is on the command line. Repeat it for more."),
    click.option("--webhook-secret-file", metavar="FILE", type=FILE,
                 help="With --to http(s)://...: sign each request as Standard Webhooks says, by the secret in "
                 "FILE, whsec_... With several secrets, each on its line, a request has a signature of each."),
)  # fmt: skip
"""The options of webhooks; `opener_of` takes their values."""


def _zone(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    from tickwheel._native import NdjsonLines
    from tickwheel.delivery.base.errors import BadRecord
    from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns

    try:
        NdjsonLines("", Columns(zone=value), MAX_PAYLOAD)
    except BadRecord as bad:
        raise click.BadParameter(str(bad)) from bad
    return value


column_options = together(
    click.option("--id", "id_", metavar="NAME", help="Column with the id, if it is not 'id'."),
    click.option("--key", metavar="NAME",
                 help="Column with the key, if it is not 'key'. Each record must have it; with NAME? it may be "
                 "missing."),
    click.option("--due", metavar="NAME", help="Column with the due time, if it is not 'due'."),
    click.option("--payload", metavar="NAME",
                 help="Column with the payload; by default the payload is the other columns."),
    click.option("--destination", metavar="NAME",
                 help="Column with the name of the destination, if it is not 'destination'."),
    click.option("--tenant", metavar="NAME", help="Column with the name of the tenant, if it is not 'tenant'."),
    click.option("--zone", metavar="ZONE", callback=_zone,
                 help="Time zone of due times without an offset, such as Europe/Berlin; by default they are "
                 "refused."),
)  # fmt: skip
"""The options that name columns; `columns_of` takes their values."""


hand_off_options = together(
    click.option("--lost", metavar="HOST:PORT", multiple=True,
                 help="With --deliverer: the address of a deliverer that has left the list, if its store never "
                 "comes back. The others get its messages; some may come twice."),
    click.option("--token-file", metavar="FILE", type=FILE,
                 help="With --deliverer: the token that it needs, with the right hand-off."),
    click.option("--tls-ca", metavar="FILE", type=FILE,
                 help="With --deliverer: use TLS; the deliverer's certificate must be signed by an authority "
                 "in FILE (PEM)."),
    click.option("--tls-cert", metavar="FILE", type=FILE,
                 help="With --tls-ca: the certificate of this client, where the deliverer wants one."),
    click.option("--tls-key", metavar="FILE", type=FILE,
                 help="With --tls-cert: its key; by default it is in the same file."),
)  # fmt: skip
"""The options that go with `--deliverer`; `access_of` takes the values of most."""


def columns_of(given: dict[str, Any]) -> "Columns":
    """Takes them out of the options that were given."""
    from tickwheel.delivery.model.message import Columns

    return Columns(*(given.pop(name) for name in ("id_", "key", "due", "payload", "destination", "tenant", "zone")))


ACCESS: Final = ("token_file", "tls_ca", "tls_cert", "tls_key")
"""The options for the token and the TLS of a client of `tickwheel serve`."""


def access_of(given: dict[str, Any]) -> "tuple[bytes | None, ClientTls | None]":
    """Takes `ACCESS` out of the options that were given, and reads the files. Errors: `WrongUsage`."""
    token_file, ca, cert, key = files = [given.pop(name) for name in ACCESS]
    if not any(files):
        return None, None
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.serve.client_tls import ClientTls
    from tickwheel.delivery.serve.tokens import read_token

    token = read_token(token_file) if token_file else None
    if ca is None and (cert or key):
        raise WrongUsage("--tls-cert and --tls-key need --tls-ca FILE, the authority of the server's certificate")
    return token, ClientTls.read(ca, cert, key) if ca else None


def time_of(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that takes a time: milliseconds since 1970."""
    from tickwheel._native import due_of
    from tickwheel.delivery.base.errors import BadRecord

    try:
        return None if value is None else due_of(value, param.opts[0])
    except BadRecord as error:
        raise click.BadParameter(f"{error.reason} (allowed: {error.allowed})") from None


def full_text(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that takes a text."""
    if value == "":
        raise click.BadParameter("it is empty: give a text, or leave it out")
    return value


def opener_of(to: str, webhook_header: Sequence[str], webhook_secret_file: Path | None) -> "Opener":
    """The opener of the destination. Errors: `WrongUsage`."""
    from tickwheel.delivery.sinks import Webhook, open_sink

    return open_sink(to, Webhook.read(webhook_header, webhook_secret_file))


def settings_of(given: dict[str, Any]) -> "Settings":
    """The settings from the values of `delivery_options`. Errors: `WrongUsage`."""
    from tickwheel.delivery.model.settings import Settings
    from tickwheel.delivery.sinks.destinations_file import read_destinations
    from tickwheel.delivery.sinks.webhook import read_value

    how = {_FIELDS.get(name, name): value for name, value in given.items()}
    file, address, proxy = how.pop("destinations"), how.pop("replicate_to"), how.pop("proxy")
    return Settings.of(
        destinations=read_destinations(file) if file else (),
        replicate_to=read_value("--replicate-to", address) if address else None,
        proxy=read_value("--proxy", proxy) if proxy and proxy != "env" else proxy,
        **how,
    )


def put_letters(path: Path | None, say: Callable[[str], object], told: "StandardError") -> "PutLetters":
    """What writes dead letters: to that file, or by `say` to standard error."""
    from tickwheel.delivery.observe import dead_letters

    return dead_letters.to_file(path) if path else dead_letters.to_lines(say, lambda: told.failure)


def allow_many_files() -> None:
    """Allow this process as many open files as `serve` may need, where the system lets it: each connection is one.
    The usual limit is 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def give_memory_back() -> None:
    """Let large payloads go back to the system as soon as they are freed, in a process that only delivers.

    Otherwise glibc keeps what it gave once for such a size, in pieces that are of no other use: 200 MiB after a burst
    of payloads of 1 MiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


def shorten_thread_switches() -> None:
    """Shorten the time for which one thread stops the others, in a process that only delivers.

    A thread that computes keeps the GIL for 0.5 ms, not 5. The garbage collector skips the objects that exist by now:
    to visit all that was imported takes 20 ms, and all threads wait for that.
    """
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
