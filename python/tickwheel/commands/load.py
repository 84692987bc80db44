"""`tickwheel load`: put the messages of files into a store, or a server, and end."""

import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from tickwheel.commands.control import server_of, targeted
from tickwheel.commands.options import (
    GIVEN,
    column_options,
    columns_of,
    dead_letters_option,
    put_letters,
    stdin_option,
    summary_option,
)

_TARGET = (
    "TARGET is a file of --store that nothing delivers from, made if needed, or the address of a server, as"
    " http://127.0.0.1:7400. A token needs the right produce."
)
_RETRY_S = 10.0  # the server may start anew


@partial(targeted, target_is=_TARGET)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, type=GIVEN)
@dead_letters_option
@stdin_option
@column_options
@summary_option
def load(
    target: str,
    access: dict[str, Any],
    inputs: Sequence[str],
    dead_letters: Path | None,
    stdin_format: str | None,
    summary: Path | None,
    **how: Any,
) -> None:
    """Put each message of INPUT into TARGET, and end: nothing is delivered here.

    INPUT is as for tickwheel deliver, and so are the dead letters, the counts and the exit codes.
    """
    from tickwheel.delivery.base.standard_error import StandardError
    from tickwheel.delivery.command.ending import exit_code, print_result, write_summary
    from tickwheel.delivery.command.loading import load_server, load_store
    from tickwheel.delivery.command.outputs import check_outputs
    from tickwheel.delivery.observe.progress import reporter
    from tickwheel.delivery.read.sources import find_sources

    told = StandardError()
    console = told.console()
    report = reporter(console, live=True)
    sources, columns = find_sources(inputs, report.say, stdin_format), columns_of(how)
    letters, server = put_letters(dead_letters, report.say, told), server_of(target, access, _RETRY_S)
    store = None if server else Path(target)
    check_outputs({"TARGET": store, "--dead-letters": dead_letters, "--summary": summary}, sources)
    if server is None:
        result = load_store(Path(target), sources, columns, letters, report)
    else:
        with closing(server):
            result = load_server(server, target, sources, columns, letters, report)
    print_result(console, result)
    written = summary is None or write_summary(console, summary, result)
    sys.exit(exit_code(result, summary_written=written))
