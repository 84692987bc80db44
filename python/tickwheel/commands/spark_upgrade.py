"""`tickwheel spark-upgrade`: what a checkpoint of Spark's holds, as records for a new checkpoint."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tickwheel.commands.printing import say
from tickwheel.commands.spark_job import Say, run_on_spark

if TYPE_CHECKING:
    from types import ModuleType

    from tickwheel.spark.upgrade.written import Upgrade


@click.command("spark-upgrade")
@click.argument("checkpoint")
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    help="Write to DIR, a new or empty folder, on storage that all hosts share: a path, or a URI.",
)
def spark_upgrade(checkpoint: str, out: str) -> None:
    """Write what CHECKPOINT holds to a folder, for a new checkpoint of another version, or with other settings.

    CHECKPOINT is that of tickwheel spark-submit or deliver --engine spark, or the checkpointLocation of your own
    program. The program must not run. The checkpoint stays as it is.

    Then start tickwheel spark-submit or deliver with --held DIR, a new --checkpoint and the same deliverers. They drop
    messages that they know.

    DIR has records as NDJSON. The folder held has messages, and given has messages that deliverers have not settled. In
    controls are recurring messages, cancels and reschedules. Dead letters that no deliverer may have are in
    dead-letters. The file upgrade.json has the counts, and how far the input was read.
    """
    checkpoint, out = (it if ":" in it else str(Path(it).absolute()) for it in (checkpoint, out))

    told: list[str] = []

    def work(module: "ModuleType", session: Any, step: Say) -> str:
        told.extend(_told(module.export(session, checkpoint, out, time.time_ns() // 1_000_000, step)))
        return out

    run_on_spark("tickwheel spark-upgrade", "tickwheel.spark.upgrade.export", out, lambda _: None, work)
    for line in told:  # not in `work`: Ctrl-C ends it at its next step, and everything is written
        say(line, err=True)


def _told(found: "Upgrade") -> list[str]:
    """The lines to print: counts, and steps for the user."""
    lines = [
        f"Messages: {found.held:,}, of which deliverers may have {found.given:,}. Recurring messages, cancels and "
        f"reschedules: {found.controls:,}."
    ]
    if found.dead_letters:
        lines.append(f"Dead letters, in dead-letters: {found.dead_letters:,}. Deliverers may have them too.")
    if found.left_out:
        lines.append(f"Reschedules that may be done by now, in left-out: {found.left_out:,}.")
    if found.other_content:
        lines.append(
            f"Messages with other content in their record: {found.other_content:,}. A deliverer that has one sends it, "
            "and makes a dead letter of the record."
        )
    for source in found.sources:
        if source.offsets is not None:
            lines.append("The topic goes on from the offsets in upgrade.json.")
        elif source.files is not None:
            lines.append(
                f"Files that were read: {len(source.files):,}. Move them out of INPUT: upgrade.json names them."
            )
        else:
            lines.append(f"The input was read up to {source.other}: begin after it, with an option of the source.")
    return lines
