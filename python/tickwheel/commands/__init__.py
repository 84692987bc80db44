"""The subcommands and their options, one module each. The code that they run is imported when the command is called.

Standard output is for results, such as deliveries; messages go to standard error. Wrong usage ends with exit code 2;
`tickwheel.delivery.command.ending` has the other codes.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tickwheel import __version__
from tickwheel._printable import logger_of, printable
from tickwheel._stopping import exit_code, stopped_by
from tickwheel.commands.analyze import analyze
from tickwheel.commands.control import again, cancel, event, forget_event, pause, requeue, reschedule, resume
from tickwheel.commands.deliver import deliver
from tickwheel.commands.destinations import destinations
from tickwheel.commands.outbox import outbox
from tickwheel.commands.printing import say, say_lines
from tickwheel.commands.report import report
from tickwheel.commands.serve import serve
from tickwheel.commands.sight import dead, list_, show, status
from tickwheel.commands.simulate import simulate
from tickwheel.commands.spark_submit import spark_submit
from tickwheel.commands.store import store
from tickwheel.commands.tenants import tenants
from tickwheel.commands.welcome import first_steps

__all__ = ["tickwheel"]
_UNEXPECTED = 70
_PASSED_ON = (click.Abort, click.exceptions.Exit, ModuleNotFoundError)  # to click, and to `tickwheel.cli`


class _Commands(click.Group):
    """A group of commands. A signal ends them with 130, also before or after the work of one begins, and an error that
    none of them expects with 70 and one line.
    """

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the options."""
        with _ends_in_one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        with _ends_in_one_line():
            return super().invoke(ctx)


@contextmanager
def _ends_in_one_line() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = printable(error.message)
        raise
    except KeyboardInterrupt as stop:
        say(f"Stopped by {stopped_by(stop)}.", err=True)
        sys.exit(exit_code(stop))
    except Exception as error:
        if isinstance(error, _PASSED_ON) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
            raise
        if isinstance(error, FileNotFoundError) and not _has_folder():
            reason = "the folder in which tickwheel was started is removed: go to another folder, and run again"
            raise click.UsageError(reason) from error
        logger_of("tickwheel").debug("an unexpected error", exc_info=error)
        say(f"Failed: {type(error).__name__}: {error}.", err=True)
        sys.exit(_UNEXPECTED)


def _has_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="tickwheel")
@click.pass_context
def tickwheel(context: click.Context) -> None:
    """A timer for very many deadlines, and delayed delivery built on it."""
    if context.invoked_subcommand is None:
        say_lines(first_steps(), err=True)
        context.exit(2)  # a script that names no command has a mistake


for _command in (
    *(
        deliver,
        serve,
        list_,
        show,
        status,
        dead,
        cancel,
        reschedule,
        event,
        forget_event,
        requeue,
        again,
        pause,
        resume,
        destinations,
        tenants,
    ),
    *(store, outbox, report, analyze, simulate, spark_submit),
):
    tickwheel.add_command(_command)
