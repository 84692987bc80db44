"""`tickwheel deliver`, in this process or on Spark."""

import math
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tickwheel.commands.durations import Duration
from tickwheel.commands.options import (
    ACCESS,
    FILE,
    GIVEN,
    PATH,
    access_of,
    column_options,
    columns_of,
    dead_letters_option,
    delivery_options,
    give_memory_back,
    hand_off_options,
    opener_of,
    put_letters,
    settings_of,
    shorten_thread_switches,
    stdin_option,
    summary_option,
    time_of,
    to_option,
    together,
    webhook_options,
)
from tickwheel.commands.paths import GivenPath

if TYPE_CHECKING:
    from tickwheel.delivery.model.summary import Summary

_STDOUT = 1
_OF_DELIVERER = ("lost", *ACCESS)
_OF_SPARK = ("checkpoint", "deliverers", *_OF_DELIVERER, "lead")
_OF_DELIVERERS = (
    *("to", "webhook_header", "webhook_secret_file", "store", "dead_letters", "summary", "page", "record"),
    *(option.name for option in delivery_options(lambda: None).__click_params__),
)


def _speed(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Parse a speed that keeps all due times in the timer's range."""
    if value is None:
        return None
    try:
        speed = float(value)
    except ValueError:
        speed = math.nan
    if not 0.1 <= speed <= 1e9:
        raise click.BadParameter(f"{value!r} is not a speed: it may be 0.1 to 1000000000, and 1 is the recorded pace.")
    return speed


_options = together(
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, type=GIVEN),
    to_option,
    click.option("--store", metavar="FILE", type=PATH,
                 help="Keep messages in FILE, made if needed; a further run goes on with it. By default a temporary "
                 "file."),
    dead_letters_option,
    stdin_option,
    column_options,
    webhook_options,
    delivery_options,
    click.option("--speed", callback=_speed, metavar="N",
                 help="Replay recorded times N times faster, from the first one."),
    click.option("--from", "from_ms", callback=time_of, metavar="TIME", help="With --speed: replay from TIME on."),
    summary_option,
    click.option("--report", "page", metavar="PAGE", type=FILE,
                 help="Write a page to PAGE (HTML): counts, lateness, what is due next, dead letters."),
    click.option("--record", metavar="FILE", type=FILE,
                 help="Write what the timer does to FILE (Parquet), for tickwheel simulate."),
    click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True,
                 help="Where messages wait that are due later: in the store, or in Spark (needs Java 17)."),
    click.option("--checkpoint", metavar="DIR", type=GivenPath(file_okay=False, path_type=Path),
                 help="With --engine spark: the folder where Spark keeps its messages; by default beside the store."),
    click.option("--deliverer", "deliverers", metavar="HOST:PORT", multiple=True,
                 help="With --engine spark: send messages to the tickwheel serve at this address, instead of "
                 "delivering them here. Repeat the option for several: each key belongs to one of them."),
    hand_off_options,
    click.option("--lead", metavar="DURATION", type=Duration(least=1, most=3600), default="20s", show_default=True,
                 help="With --engine spark: messages leave Spark this long before they are due, 1s to 1h."),
)  # fmt: skip


@click.command()
@_options
def deliver(
    inputs: Sequence[str],
    to: str,
    store: Path | None,
    dead_letters: Path | None,
    stdin_format: str | None,
    speed: float | None,
    from_ms: int | None,
    summary: Path | None,
    page: Path | None,
    record: Path | None,
    engine: str,
    checkpoint: Path | None,
    deliverers: Sequence[str],
    lost: Sequence[str],
    lead: float,
    webhook_header: Sequence[str],
    webhook_secret_file: Path | None,
    **how: Any,
) -> None:
    """Deliver each message of INPUT at its due time.

    INPUT is a file (.ndjson, .jsonl, .csv or .parquet), a folder of them, or - for standard input, which is NDJSON
    unless --format says otherwise. CSV has a header, and commas, semicolons or tabs between the cells. A message has an
    id, a due time (RFC 3339 with an offset, or epoch milliseconds) or delay_ms, and perhaps a key, a payload, and the
    time when it expires. One with every (milliseconds) or cron comes again and again, until Ctrl-C; with
    --engine spark it is a dead letter.
    """
    from tickwheel.delivery.base.errors import WrongUsage
    from tickwheel.delivery.base.standard_error import StandardError
    from tickwheel.delivery.command.ending import exit_code, print_result, write_summary
    from tickwheel.delivery.command.job import Job, run
    from tickwheel.delivery.command.outputs import NewOutputs, check_outputs
    from tickwheel.delivery.command.reading import Reading
    from tickwheel.delivery.observe.progress import reporter
    from tickwheel.delivery.read.parquet import need_pyarrow
    from tickwheel.delivery.read.sources import find_sources
    from tickwheel.delivery.sinks import path_of

    _check_together(click.get_current_context())
    told = StandardError()
    console = told.console()
    report = reporter(console, live=to != "-" or not os.isatty(_STDOUT))
    lead_ms = round(lead * 1000)
    made = NewOutputs(path_of(to))
    try:
        sources = find_sources(inputs, report.say, stdin_format)
        outputs = {"--to": path_of(to), "--store": store, "--dead-letters": dead_letters, "--summary": summary}
        check_outputs(outputs | {"--report": page, "--record": record}, sources)
        columns, access = columns_of(how), access_of(how)
        if deliverers:
            pipeline = _spark().Pipeline(sources, columns, checkpoint, lead_ms)
            hand_off = _spark().HandOff(deliverers, *access, lost=lost)
            sys.exit(_spark().feed_others(pipeline, hand_off, report.say))
        if engine == "spark":
            beside = store.with_name(f"{store.name}.checkpoint") if store else None
            read = _spark().reader_of(sources, columns, checkpoint or beside, lead_ms)
        else:
            say, is_replay = report.say, speed is not None
            read = lambda running, _store: Reading(sources, columns, running, say, is_replay=is_replay)  # noqa: E731
        settings = settings_of(how)
        opener = opener_of(to, webhook_header, webhook_secret_file)
        if record is not None:
            need_pyarrow()
        job = Job(
            read,
            opener,
            put_letters(dead_letters, report.say, told),
            settings,
            store,
            speed,
            from_ms,
            _page_maker(page, f"Delivery of {', '.join(inputs)}", report.say),
            record,
        )
        give_memory_back()
        shorten_thread_switches()
        if store is None:
            report.say("No --store: messages are kept in a temporary one, and gone if this run is stopped.")
        result = run(job, report)
    except WrongUsage as error:
        made.remove_unused()
        raise click.UsageError(str(error)) from error
    if result.failure:
        made.remove_unused()
    print_result(console, result)
    written = summary is None or write_summary(console, summary, result)
    sys.exit(exit_code(result, summary_written=written))


def _check_together(context: click.Context) -> None:
    """Refuse options that have no effect together. Errors: `UsageError`."""
    given = context.params
    if given["from_ms"] is not None and given["speed"] is None:
        raise click.UsageError("--from TIME needs --speed N: without it messages are due by the wall clock.")
    if given["replicate_to"] is not None and given["store"] is None:
        raise click.UsageError("--replicate-to needs --store FILE: the store that is replicated.")
    if given["engine"] == "local":
        _refuse(context, _OF_SPARK, "only with --engine spark")
        return
    if given["speed"] is not None:
        raise click.UsageError("--speed is not for --engine spark, which holds messages by the wall clock.")
    if not given["deliverers"]:
        _refuse(context, _OF_DELIVERER, "only with --deliverer")
        return
    _refuse(context, _OF_DELIVERERS, "not with --deliverer, which has its own; see tickwheel serve")
    if given["checkpoint"] is None:
        raise click.UsageError("--deliverer needs --checkpoint DIR, where Spark keeps its messages.")


def _refuse(context: click.Context, names: Collection[str], why: str) -> None:
    found = [
        option.opts[-1]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
    ]
    if found:
        raise click.UsageError(f"{', '.join(found)}: {why}.")


def _page_maker(
    page: Path | None, title: str, say: Callable[[str], object]
) -> "Callable[[Path, Summary], object] | None":
    """The function that makes the report at the end. Errors: `WrongUsage` if its libraries are missing."""
    if page is None:
        return None
    from tickwheel.delivery.report import need_report, write_report

    need_report("--report")

    def make(store: Path, counts: "Summary") -> None:
        say(f"Making the report {page}.")
        write_report(store, page, title=title, summary=counts)

    return make


def _spark() -> Any:
    """Import the module that runs on Spark. Errors: `WrongUsage` if it can't be imported."""
    from tickwheel.delivery.base.errors import WrongUsage

    try:
        import tickwheel.spark.run
    except ImportError as error:
        raise WrongUsage(f"{error.name} can't be imported ({error}): run pip install 'tickwheel[spark]'") from error
    return tickwheel.spark.run
