"""`tickwheel spark-submit`: `spark-submit` with the program for clusters, and that program's own options.

    tickwheel spark-submit --master spark://head:7077 -- /data/in --deliverer a:7400 --checkpoint hdfs:///tickwheel

The arguments before `--` are for Spark, the arguments after it for the program. The program's options are checked
before Spark starts.
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tickwheel.commands.durations import Duration
from tickwheel.commands.options import GIVEN, access_of, column_options, columns_of, hand_off_options, together
from tickwheel.commands.printing import say

_BETWEEN = "--"
_QUIET = "spark.log.level=WARN"
_LINE = "%(asctime)s tickwheel %(levelname)s %(message)s"  # the lines of Spark are between these


def _options(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> Mapping[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} has no value: write NAME=VALUE.")
    return {name: rest for name, _, rest in (value.partition("=") for value in values)}


_program_options = together(
    click.argument("given", metavar="INPUT", type=GIVEN),
    click.option("--deliverer", "deliverers", metavar="HOST:PORT", multiple=True, required=True,
                 help="The address of a tickwheel serve. Repeat the option for several: each key belongs to one of "
                 "them."),
    hand_off_options,
    click.option("--checkpoint", metavar="URI", required=True,
                 help="The folder where Spark keeps its messages, on storage that all hosts share: hdfs://, s3a://, or "
                 "a path."),
    click.option("--lead", "lead_s", metavar="DURATION", type=Duration(least=1, most=3600),
                 help="Messages leave Spark this long before they are due, 1s to 1h; by default 20s with a local "
                 "master, 90s elsewhere. A number alone is seconds."),
    column_options,
    click.option("--source-option", "options", metavar="NAME=VALUE", multiple=True, callback=_options,
                 help="An option of Spark's source, as kafka.security.protocol=SSL, or in place of a bound of a "
                 "micro-batch, as maxOffsetsPerTrigger=100000. Repeat it for more."),
    click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus there, as 0.0.0.0:9464."),
    click.option("--changed-source", is_flag=True,
                 help="If INPUT is not the one of the checkpoint, as a topic that was made anew: go on all the same, "
                 "from where it was read to. Leaves out files that are gone before they were read."),
    click.option("--until-delivered", is_flag=True,
                 help="End when all that is there is delivered; do not wait for more."),
)  # fmt: skip


@click.command("program.py", context_settings={"help_option_names": ["-h", "--help"]})
@_program_options
def program(
    given: str,
    deliverers: Sequence[str],
    lost: Sequence[str],
    options: Mapping[str, str],
    metrics: str | None,
    **how: Any,
) -> None:
    """Hold the messages of INPUT in Spark, and hand each to its deliverer before it is due, until SIGTERM or Ctrl-C.

    INPUT is a file or folder, also a later file in it (.ndjson, .jsonl, .csv or .parquet), by a path that all hosts
    share or any URI that Spark reads; kafka://BROKERS/TOPIC; or table:NAME.
    """
    from tickwheel.delivery.base.errors import DeliveryFailed, WrongUsage
    from tickwheel.delivery.serve.access import Address

    logging.basicConfig(format=_LINE, stream=sys.stderr)
    logging.getLogger("tickwheel").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs the traceback of an error that is also raised here
    try:
        from tickwheel.spark.inputs import Input
        from tickwheel.spark.runner import Program

        token, tls = access_of(how)
        code = Program(
            Input(given, columns_of(how), options),
            deliverers=deliverers,
            lost=lost,
            token=token,
            tls=tls,
            metrics=Address.of("--metrics", metrics) if metrics else None,
            **how,
        ).run()
    except WrongUsage as error:
        raise click.UsageError(str(error)) from error
    except DeliveryFailed as error:
        say(f"Failed: {error}; then run it again to go on.", err=True)
        sys.exit(3)
    sys.exit(code)


def main() -> None:
    """Run the program. Ends the process."""
    program(prog_name="program.py")


class _SparkSubmit(click.Command):
    """A command whose arguments are not its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Divide them at `--`."""
        if args in (["--help"], ["-h"]):
            return super().parse_args(ctx, args)
        if _BETWEEN not in args:
            raise click.UsageError(
                "-- is missing: write tickwheel spark-submit [OPTIONS OF SPARK-SUBMIT] -- INPUT [OPTIONS]", ctx
            )
        at = args.index(_BETWEEN)
        ctx.params = {"for_spark": args[:at], "for_program": args[at + 1 :]}
        return []

    def collect_usage_pieces(self, _ctx: click.Context) -> list[str]:
        """How it is called."""
        return ["[OPTIONS OF SPARK-SUBMIT] -- INPUT [OPTIONS]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The program's."""
        program.format_options(ctx, formatter)


@click.command(cls=_SparkSubmit)
def spark_submit(for_spark: Sequence[str], for_program: Sequence[str]) -> None:
    """Run the delivery on a Spark cluster.

    It is a program for the spark-submit of the pyspark that is installed. It holds the messages of INPUT in Spark, and
    hands each to its deliverer before it is due, until SIGTERM or Ctrl-C.
    Arguments before -- are for spark-submit, as --master and --conf; arguments after it are for the program.

    INPUT is a file or folder, also a later file in it (.ndjson, .jsonl, .csv or .parquet), by a path that all hosts
    share or any URI that Spark reads; kafka://BROKERS/TOPIC; or table:NAME.
    """
    try:
        from pyspark.find_spark_home import _find_spark_home

        import tickwheel.spark
        from tickwheel.spark.inputs import Input
        from tickwheel.spark.session import HOLD_SETTINGS, need_java
    except ImportError as error:
        raise click.UsageError(
            f"{error.name} can't be imported ({error}): run pip install 'tickwheel[spark]'"
        ) from error
    from tickwheel.delivery.base.errors import WrongUsage

    with program.make_context("tickwheel spark-submit ... --", [*for_program]) as options:
        try:  # a mistake is an error now, not after Spark has started
            Input(options.params["given"])
            need_java()
        except WrongUsage as error:
            raise click.UsageError(str(error)) from error
    settings = [_QUIET, *(f"{name}={value}" for name, value in HOLD_SETTINGS.items())]
    command = [
        str(Path(_find_spark_home(), "bin", "spark-submit")),
        *(part for setting in settings for part in ("--conf", setting)),
        *for_spark,
        str(Path(tickwheel.spark.__file__).with_name("program.py")),
        *for_program,
    ]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606, no shell
