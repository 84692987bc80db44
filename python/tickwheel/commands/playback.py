"""`tickwheel playback`."""

import sys
from pathlib import Path

import click

from tickwheel.commands.options import FILE, together
from tickwheel.commands.paths import GivenPath
from tickwheel.commands.printing import say

_options = together(
    click.argument("recording", metavar="EVENTS", type=GivenPath(exists=True, dir_okay=False, path_type=Path)),
    click.option("--out", "page", metavar="PAGE", type=FILE, help="Write the page to PAGE; by default to EVENTS.html."),
    click.option("--tick", "tick_ms", metavar="MS", type=int, default=1, show_default=True,
                 help="The finest tick, in milliseconds, of the wheel that is shown."),
    click.option("--size", metavar="N", type=int, default=20, show_default=True, help="Its buckets per level."),
)  # fmt: skip


@click.command()
@_options
def playback(recording: Path, page: Path | None, tick_ms: int, size: int) -> None:
    """Write a page (HTML) on which a wheel turns as the timer's did that wrote EVENTS: see tickwheel.recording.

    Each moment can be seen, at any speed: how full the buckets were, and how late the calls. deliver --record
    writes such a file too.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise click.UsageError("pyarrow is not installed: run pip install 'tickwheel[recording]'") from error
    from tickwheel.pages import playback as write_page

    page = page or recording.with_name(f"{recording.name}.html")
    if page.exists() and page.samefile(recording):
        raise click.UsageError(f"--out {page} is the recording itself: name another file")
    try:
        write_page(recording, page, tick_ms=tick_ms, wheel_size=size)
    except ValueError as error:  # a bad recording is one too
        raise click.UsageError(str(error)) from error
    except OSError as error:
        say(f"Failed: {error}.", err=True)
        sys.exit(3)
    say(f"Done: {page}", err=True)
