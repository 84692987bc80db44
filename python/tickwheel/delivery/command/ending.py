"""Reports the end of a run: the counts, the undelivered messages and how to go on, and the exit code.

The exit codes:

- 0: success.
- 1: everything is delivered, except for dead letters; or this run wrote dead letters that an earlier run could not
  write.
- 2 (not from here): wrong usage.
- 3: reading, sending or writing the summary failed.
- 130: a signal stopped the run.
"""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tickwheel._printable import printable
from tickwheel.delivery.command.job import Result
from tickwheel.delivery.command.reading import ITS_START
from tickwheel.delivery.model.summary import Summary

_ALWAYS = {"accepted", "delivered", "duplicates", "cancelled", "dead_letters"}


def print_result(console: Console, result: Result) -> None:
    """Print the result."""
    console.print(_table(result.summary))
    if result.interrupted:
        _say(console, f"Stopped by {result.stopped_by}.")
    if result.failure:
        _say(console, f"Failed: {result.failure}.")
    if result.late_letters:
        _say(console, f"Dead letters of earlier runs, written now: {result.late_letters:,}.")
    if result.letters_left:
        kept = f"the next run with the store {result.store} writes them" if result.store else "no --store was given"
        _say(console, f"Not all dead letters are written: {kept}.")
    if (into := result.loaded_into) is not None:
        it = result.summary
        is_new = it.accepted or it.cancelled or it.cancels_unknown or it.rescheduled or it.events
        _say(console, f"{'Loaded' if is_new else 'Nothing new was loaded'} into {into}; nothing was delivered.")
        if result.stopped_at:
            at = "was not begun" if result.stopped_at == ITS_START else f"was read up to {result.stopped_at}"
            _say(console, f"The input {at}. To go on, run it again: what was accepted counts once.")
        return
    kept = f"kept in the store {result.store}" if result.store else "not kept, because no --store was given"
    if result.recurring:
        _say(console, f"Recurring: {result.recurring:,}, each with its next occurrence, {kept}.")
    not_delivered = result.summary.not_delivered
    if (others := not_delivered - 2 * result.recurring) > 0:
        _say(console, f"Not delivered: {others:,}, {kept}.")
    if result.stopped_at == ITS_START:
        _say(console, "Nothing of the input was read.")
    elif result.stopped_at:
        _say(console, f"The input was read up to {result.stopped_at}, and no further.")
    if not_delivered or result.stopped_at:
        _say(console, _how_to_go_on(result))


def write_summary(console: Console, path: Path, result: Result) -> bool:
    """Whether the counts could be written to `path`. A failure is printed."""
    text = msgspec.json.format(msgspec.json.encode(result.summary.as_dict())) + b"\n"
    try:
        path.write_bytes(text)
    except OSError as error:
        _say(console, f"Failed: the summary can't be written to {path}: {error.strerror}.")
        return False
    return True


def exit_code(result: Result, *, summary_written: bool) -> int:
    """The exit code of the process."""
    if result.interrupted:
        return 130
    if result.failure or not summary_written:
        return 3
    return 1 if result.summary.dead_letters or result.late_letters else 0


def _how_to_go_on(result: Result) -> str:
    if result.store:
        return "To go on, run again with the same --store."
    return "To go on, run again with the messages missing at the destination: every message given is sent again."


def _table(summary: Summary) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    for name, value in summary.as_dict().items():
        words = name.replace("_", " ")
        if isinstance(value, int):
            if value or name in _ALWAYS:
                table.add_row(words, f"{value:,}")
        else:
            for rank, lateness_ms in value.items():
                table.add_row(f"lateness {rank}", "-" if lateness_ms is None else f"{lateness_ms:.3f} ms")
    return table


def _say(console: Console, text: str) -> None:
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
