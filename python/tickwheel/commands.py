"""The subcommands and their options; what they do is elsewhere, and imported when it is asked for.

Standard output holds deliveries only, all that is for people goes to standard error. Wrong usage ends with exit code 2,
other codes are those of `tickwheel.delivery.ending`.
"""

import gc
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.console import Console

from tickwheel import __version__
from tickwheel.analyze import analyze
from tickwheel.simulate import simulate

if TYPE_CHECKING:
    from tickwheel.delivery.engine import Engine, Settings
    from tickwheel.delivery.reading import Reader

_STDOUT = 1


def _give_threads_their_turn() -> None:
    """In a process that does nothing but deliver, no thread keeps the others waiting for long.

    One that computes keeps the interpreter for 0.5 ms, not 5. The garbage collector no longer looks at what is there
    by now: to look at all that was imported takes 20 ms, and every thread waits meanwhile.
    """
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()


def _speed(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Within what keeps every due time in the timer's range."""
    if value is None:
        return None
    try:
        speed = float(value)
    except ValueError:
        speed = math.nan
    if not 0.1 <= speed <= 1e9:
        raise click.BadParameter(f"{value!r} is not a speed: it may be 0.1 to 1000000000, and 1 is the recorded pace.")
    return speed


def _time(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """In epoch milliseconds, by the rule for due times."""
    from tickwheel.delivery.errors import BadRecord
    from tickwheel.delivery.times import due_from, number_or_text

    try:
        return None if value is None else due_from(number_or_text(value), "the time")
    except BadRecord as bad:
        raise click.BadParameter(str(bad)) from bad


_to = click.option(
    "--to",
    metavar="SINK",
    default="-",
    show_default=True,
    help="Destination: - (standard output), file:PATH, python:MODULE:FUNCTION, http(s)://..., "
    "sqlite:PATH?table=T, postgresql://...?table=T, kafka://BROKERS/TOPIC.",
)

_dead_letters = click.option(
    "--dead-letters",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append bad records to FILE as NDJSON; by default they go to standard error.",
)


def _delivery_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that `deliver` and `serve` share; they arrive in `_settings`."""
    for option in reversed(
        (
            click.option("--order", type=click.Choice(["key", "global"]), default="key", show_default=True,
                         help="In order per key, or all in one order, one at a time."),
            click.option("--horizon", metavar="SECONDS", type=float, default=10, show_default=True,
                         help="How far ahead messages are brought into memory."),
            click.option("--max-attempts", metavar="N", type=int, default=5, show_default=True,
                         help="How often one is tried, before it goes to the dead letters."),
            click.option("--sink-timeout", metavar="SECONDS", type=float, default=30, show_default=True,
                         help="When an attempt is given up that gets no answer."),
            click.option("--keep-ids", metavar="DAYS", type=float, default=7, show_default=True,
                         help="How long a message is known after its outcome, to find duplicates."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def _settings(
    order: Literal["key", "global"], horizon: float, max_attempts: int, sink_timeout: float, keep_ids: float
) -> "Settings":
    from tickwheel.delivery.engine import Settings
    from tickwheel.delivery.retry import Retry

    return Settings(order, horizon, sink_timeout, keep_ids, Retry(max_attempts))


def _no_others(*options: tuple[str, object]) -> None:
    given = [name for name, value in options if value is not None]
    if given:
        raise click.UsageError(f"{', '.join(given)}: not with --deliverer, which has its own; see tickwheel serve.")


def _spark() -> Any:
    """The module that runs on Spark, which is imported only where it is asked for."""
    from tickwheel.delivery.errors import WrongUsage

    try:
        import tickwheel.spark.run
    except ImportError as error:
        raise WrongUsage(f"{error.name} can't be imported ({error}): run pip install 'tickwheel[spark]'") from error
    return tickwheel.spark.run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tickwheel")
def tickwheel() -> None:
    """A timer for very many deadlines, and delayed delivery built on it."""


@tickwheel.command()
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON.")
def trace(as_json: bool) -> None:
    """Show a timing wheel at work, step by step."""
    import tickwheel.trace

    tickwheel.trace.run(as_json=as_json, console=None)


@tickwheel.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@_to
@click.option(
    "--store",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Keep messages in FILE, made if needed: run again, and it goes on. By default a temporary one.",
)
@_dead_letters
@click.option("--id", "id_", metavar="NAME", help="Column with the id, if it is not 'id'.")
@click.option("--key", metavar="NAME", help="Column with the key, if it is not 'key'.")
@click.option("--due", metavar="NAME", help="Column with the due time, if it is not 'due'.")
@click.option("--payload", metavar="NAME", help="Column with the payload; without one, the other columns.")
@_delivery_options
@click.option("--speed", callback=_speed, metavar="N", help="Replay recorded times N times faster, from the first one.")
@click.option("--from", "from_ms", callback=_time, metavar="TIME", help="With --speed: replay from TIME on.")
@click.option(
    "--summary",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the counts to FILE.",
)
@click.option(
    "--report",
    "page",
    metavar="PAGE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page to PAGE (HTML): counts, lateness, what is due next, dead letters.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Where what is far away waits: in the store, or in Spark (needs Java 17).",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --engine spark: where Spark keeps what it holds; by default beside the store.",
)
@click.option(
    "--deliverer",
    "deliverers",
    metavar="HOST:PORT",
    multiple=True,
    help="With --engine spark: hand messages to the Flight port of a tickwheel serve, instead of delivering here. "
    "Repeat it for more than one: each key belongs to one of them.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --deliverer: the token that they ask for.",
)
@click.option(
    "--lead",
    metavar="SECONDS",
    type=click.FloatRange(1, 3600),
    default=20,
    show_default=True,
    help="With --engine spark: how long before they are due messages leave Spark.",
)
def deliver(
    inputs: Sequence[str],
    to: str,
    store: Path | None,
    dead_letters: Path | None,
    id_: str | None,
    key: str | None,
    due: str | None,
    payload: str | None,
    speed: float | None,
    from_ms: int | None,
    summary: Path | None,
    page: Path | None,
    engine: str,
    checkpoint: Path | None,
    deliverers: Sequence[str],
    token_file: Path | None,
    lead: float,
    **how: Any,
) -> None:
    """Deliver each message of INPUT at its due time.

    INPUT is a file (.ndjson, .jsonl, .csv or .parquet), a folder of them, or - for NDJSON on standard input. A message
    has an id, a due time (RFC 3339 with an offset, or epoch milliseconds) or delay_ms, and perhaps a key and a payload.
    """
    from tickwheel.delivery import dead_letters as letters
    from tickwheel.delivery.ending import exit_code, tell, write_summary
    from tickwheel.delivery.errors import WrongUsage
    from tickwheel.delivery.job import Job, run
    from tickwheel.delivery.message import Columns
    from tickwheel.delivery.outputs import check_outputs
    from tickwheel.delivery.progress import reporter
    from tickwheel.delivery.reading import Reading
    from tickwheel.delivery.report import need_report, write_report
    from tickwheel.delivery.serve.door import read_token
    from tickwheel.delivery.sinks import open_sink, path_of
    from tickwheel.delivery.sources import find_sources
    from tickwheel.delivery.summary import Summary

    if from_ms is not None and speed is None:
        raise click.UsageError("--from TIME needs --speed N: without it messages are due by the wall clock.")
    if engine == "local" and (checkpoint or deliverers or token_file):
        raise click.UsageError("--checkpoint, --deliverer and --token-file are for --engine spark.")
    if engine == "spark" and speed is not None:
        raise click.UsageError("--speed is not for --engine spark, which holds messages by the wall clock.")
    console = Console(stderr=True)
    report = reporter(console, live=to != "-" or not os.isatty(_STDOUT))

    def make_page(store: Path, counts: Summary) -> None:
        if page is not None:
            report.say(f"Making the report {page}.")
            write_report(store, page, title=f"Delivery of {', '.join(inputs)}", summary=counts)

    try:
        if page is not None:
            need_report("--report")
        sources = find_sources(inputs)
        outputs = {"--to": path_of(to), "--store": store, "--dead-letters": dead_letters, "--summary": summary}
        check_outputs(outputs | {"--report": page}, sources)
        opener = open_sink(to)
        put_letters = letters.to_file(dead_letters) if dead_letters else letters.to_people(report.say)
        columns = Columns(id_, key, due, payload)
        if deliverers:
            _no_others(("--store", store), ("--dead-letters", dead_letters), ("--summary", summary), ("--report", page))
            if engine != "spark" or checkpoint is None or to != "-":
                raise click.UsageError("--deliverer needs --engine spark and --checkpoint DIR, and takes no --to.")
            token = read_token(token_file) if token_file else None
            feeding = _spark().Pipeline(sources, columns, checkpoint, round(lead * 1000), deliverers)
            sys.exit(_spark().feed_others(feeding, token, report.say))
        read: Callable[[Engine, Path], Reader]
        if engine == "spark":
            beside = store.with_name(f"{store.name}.checkpoint") if store else None
            read = _spark().reader_of(sources, columns, checkpoint or beside, round(lead * 1000))
        else:

            def read(engine: "Engine", _store: Path) -> "Reader":
                return Reading(sources, columns, engine, is_replay=speed is not None)

        job = Job(read, opener, put_letters, _settings(**how), store, speed, from_ms, make_page)
        _give_threads_their_turn()
        if store is None:
            report.say("No --store: messages are kept in a temporary one, and gone if this run is stopped.")
        result = run(job, report)
    except WrongUsage as error:
        raise click.UsageError(str(error)) from error
    tell(console, result)
    written = summary is None or write_summary(console, summary, result)
    sys.exit(exit_code(result, summary_written=written))


@tickwheel.command()
@click.option(
    "--store",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="Keep messages in FILE, made if needed. Another process that has it is waited for.",
)
@_to
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:7400", show_default=True, help="Where HTTP is served."
)
@click.option(
    "--flight", metavar="HOST:PORT", default="127.0.0.1:7401", show_default=True, help="Where Arrow Flight is served."
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Let in only who gives the token in FILE. Needed to listen elsewhere than on loopback.",
)
@click.option(
    "--max-payload",
    metavar="BYTES",
    type=int,
    default=1 << 20,
    show_default=True,
    help="Bytes of one payload, at most.",
)
@_dead_letters
@_delivery_options
def serve(
    store: Path,
    to: str,
    listen: str,
    flight: str,
    token_file: Path | None,
    max_payload: int,
    dead_letters: Path | None,
    **how: Any,
) -> None:
    """Take messages over HTTP and Arrow Flight, and deliver each at its due time, until a signal comes.

    Messages are as for deliver, and are answered once they are on disk.
    """
    from tickwheel.delivery import dead_letters as letters
    from tickwheel.delivery.ending import tell
    from tickwheel.delivery.errors import WrongUsage
    from tickwheel.delivery.outputs import check_outputs
    from tickwheel.delivery.progress import reporter
    from tickwheel.delivery.serve.door import Address, read_token
    from tickwheel.delivery.serve.run import Service
    from tickwheel.delivery.serve.run import serve as run
    from tickwheel.delivery.sinks import open_sink, path_of

    console = Console(stderr=True)
    say = reporter(console, live=False).say
    try:
        check_outputs({"--to": path_of(to), "--store": store, "--dead-letters": dead_letters}, ())
        addresses = Address.of("--listen", listen), Address.of("--flight", flight)
        token = read_token(token_file) if token_file else None
        put_letters = letters.to_file(dead_letters) if dead_letters else letters.to_people(say)
        service = Service(store, open_sink(to), put_letters, _settings(**how), *addresses, token, max_payload)
        _give_threads_their_turn()
        ended = run(service, say)
    except WrongUsage as error:
        raise click.UsageError(str(error)) from error
    tell(console, ended.result)
    ended.exit()


tickwheel.add_command(analyze)
tickwheel.add_command(simulate)
