"""The code and the documents, both ways: what a user can name is described, and what is described exists (rule D11)."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from delivery.serve.conftest import Served
from tickwheel._native import MAX_DUE_MS
from tickwheel.commands import tickwheel
from tickwheel.commands.spark_submit import program, spark_submit
from tickwheel.delivery.model.message import MAX_PAYLOAD
from tickwheel.delivery.outbox.tables import TABLE
from tickwheel.delivery.serve import actions, answers, arrow_bodies, bodies, http, http_connection, ports
from tickwheel.delivery.serve.application import REQUESTS
from tickwheel.delivery.serve.bodies import Bodies
from tickwheel.delivery.serve.connections import HEAD_WITHIN_S
from tickwheel.delivery.serve.http import app
from tickwheel.delivery.serve.live import Live
from tickwheel.delivery.sight.messages import MOST

ROOT = Path(__file__).parents[3]
# But for the page of the models, which names flags of builds.
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not path.name.startswith("concurrency")]
METHODS = "GET|POST|PUT|PATCH|DELETE"
# Options of other programs that the documents name: cargo, curl, docker, Spark, systemd, and our own benchmarks.
OF_OTHERS = {
    "--archives",
    "--bench",
    "--build-arg",
    "--cacert",
    "--cert",
    "--conf",
    "--cores",
    "--host",
    "--hot",
    "--idle",
    "--held",
    "--kill",
    "--lib",
    "--long",
    "--master",
    "--memory",
    "--messages",
    "--network",
    "--no-block",
    "--nocapture",
    "--now",
    "--only",
    "--packages",
    "--parking-lot",
    "--port",
    "--postgresql",
    "--preload",
    "--release",
    "--retry",
    "--retry-connrefused",
    "--retry-delay",
    "--seconds",
    "--silent",
    "--small",
    "--span-s",
    "--stop-timeout",
    "--work-dir",
    "--workers",
}
OF_PYTHON = ("replace", "debounce_ms", "at_latest_ms")


def text() -> str:
    return "\n".join(path.read_text("utf-8") for path in PAGES)


def commands(group: click.Group = tickwheel, name: str = "tickwheel") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its whole name."""
    for each, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {each}")
        else:
            yield f"{name} {each}", command


COMMANDS = dict(commands())
OF_DJANGO = {path.stem: path.read_text() for path in (ROOT / "python/tickwheel/django/management").rglob("*.py")}


def options_of(command: click.Command) -> set[str]:
    params = program.params if command is spark_submit else command.params
    shown = (option for option in params if isinstance(option, click.Option))
    return {name for option in shown for name in option.opts}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    opened = Served(tmp_path_factory.mktemp("complete"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def routes(served: Served) -> set[str]:
    """As `GET /messages/{id}`."""
    inner: Any = app(served.running, MAX_PAYLOAD, Bodies(lambda _: True), Live(served.running, served.access))
    return {
        f"{method} {re.sub(':[a-z]+', '', route.path)}"
        for route in inner.routes
        for method in route.methods
        if method != "HEAD"
    }


def test_every_route_is_described__D11(routes: set[str]) -> None:
    page = (ROOT / "docs/delivery/http.md").read_text()
    assert set(re.findall(rf"^### ((?:{METHODS}) /\S*)$", page, re.MULTILINE)) == routes


def test_every_route_that_is_named_exists__D11(routes: set[str]) -> None:
    named = set(re.findall(rf"\b({METHODS}) (/[a-z-]+(?:/[^\s`?,]+)?)", text()))
    assert len(named) > 15
    generic = {(method, re.sub(r"^(/(?!destinations|tenants)\w+)/.+", r"\1/{id}", path)) for method, path in named}
    assert {f"{method} {path}" for method, path in generic} <= routes


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_described_and_no_other__D11(name: str) -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"{name} is not in configuration.md: run make docs"
    told = {each for cell in re.findall(r"^- `(--?[^`]*)`", section[1], re.MULTILINE) for each in _flags(cell)}
    assert told == options_of(COMMANDS[name]) - {"--help"}


def test_every_command_that_is_described_exists__D11() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    assert set(re.findall(r"^## (tickwheel .*)$", page, re.MULTILINE)) == set(COMMANDS)
    first = {name.split()[1] for name in COMMANDS}
    assert {
        each for each in re.findall(r"(?<![`\w/.])tickwheel ([a-z][a-z-]+) ", _shell()) if each not in first
    } == set()


def test_every_option_and_variable_that_is_named_exists__D11() -> None:
    known = set.union(*map(options_of, COMMANDS.values())) | {"--help", "--version"}
    known |= {option for source in OF_DJANGO.values() for option in re.findall(r'"(--[a-z-]+)"', source)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", _code()))
    assert named - known == OF_OTHERS - known
    assert len(named & known) > 40
    serve: Any = COMMANDS["tickwheel serve"]
    variables = {f"TICKWHEEL_SERVE_{str(it.name).upper()}" for it in serve.options.values()}
    assert set(re.findall(r"\bTICKWHEEL_SERVE_\w+", text())) == variables | {"TICKWHEEL_SERVE_CONFIG"}


def test_every_command_line_that_is_shown_can_be_parsed__D11() -> None:
    lines = re.findall(r"^(?:\$ )?tickwheel (.*)$", _shell().replace("\\\n", " "), re.MULTILINE)
    assert len(lines) > 30
    for line in lines:
        words = shlex.split(re.split(r" (?:\d?>|<|&|\|)", line, maxsplit=1)[0], comments=True)
        command: click.Command = tickwheel
        while isinstance(command, click.Group) and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        if command is tickwheel or "[OPTIONS" in line:
            continue  # how it is used, in general
        if command is spark_submit:
            command, words = program, words[words.index("--") + 1 :] if "--" in words else []
        context = click.Context(command)
        parser = command.make_parser(context)
        try:
            _, left, _ = parser.parse_args(words)
        except click.UsageError as error:
            raise AssertionError(f"tickwheel {line}: {error.format_message()}") from error
        assert left == [], f"tickwheel {line}: {left} is too much"


def test_every_metric_is_described_and_every_one_that_is_named_exists__D15(served: Served) -> None:
    families = [*text_string_to_metric_families(served.ask("GET", "/metrics").body)]
    described = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    samples = {sample.name for family in families for sample in family.samples}
    named = set(re.findall(r"\b(?:tickwheel|process)_[a-z_]+\b", text()))
    of_spark = {name for name in named if name.startswith("tickwheel_spark_")}
    others = {TABLE, *OF_DJANGO}
    assert described - others <= named - others <= described | samples | of_spark
    source = (ROOT / "python/tickwheel/spark/metrics.py").read_text()
    words = set(re.findall(r'"(?:tickwheel_)?(?:spark_)?(\w+)"', source))  # it puts the rest of a name together
    assert {name.removeprefix("tickwheel_spark_").removesuffix("_total") for name in of_spark} <= words


def test_every_field_of_a_record_is_described_and_no_other__D1() -> None:
    source = (ROOT / "crates/delivery/src/message/columns.rs").read_text()
    fields = set(re.findall(r'^pub(?:\(crate\))? const [A-Z0-9_]+: &str = "(\w+)";', source, re.MULTILINE))
    fields |= set(re.findall(r'unwrap_or\("(\w+)"\)', source))
    assert {"id", "cron", "payload_base64"} <= fields
    page = (ROOT / "docs/delivery/records.md").read_text()
    table = page.split("## Fields")[1].split("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == fields
    source = (ROOT / "crates/python/src/delivery/values/puts.rs").read_text()
    of_put = set(re.findall(r'"(\w+)"', source.split("const FIELDS")[1].split("];")[0]))
    others = {"op", "event", "remember_ms", "payload_base64"}  # a cancel and an event are methods, and bytes are bytes
    assert of_put == fields - others | set(OF_PYTHON)
    assert all(f"`{name}`" in page for name in OF_PYTHON)


def test_every_bound_of_the_server_is_told_as_it_is__D12() -> None:
    page = (ROOT / "docs/delivery/security.md").read_text()
    table = re.search(r"^\| what \| bound \|\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    assert table is not None
    told = dict(re.findall(r"^\| (.*?) \| (.*) \|$", table[1], re.MULTILINE))
    sources = "".join(path.read_text() for path in (ROOT / "python/tickwheel/delivery/serve").glob("*.py"))
    threads = dict(re.findall(r'Threads\("([\w-]+)", \d+, (\d+)\)', sources))
    known = {
        "a payload": mib(MAX_PAYLOAD),
        "a body": f"{http._OVERHEAD >> 10} KiB, of many messages at least {mib(http._MANY)}",
        "the messages of an Arrow stream": mib(arrow_bodies.MOST_DECODED_BYTES),
        "an Arrow stream": f"{arrow_bodies.MOST_ROWS:,} rows and {mib(arrow_bodies.MOST_BYTES)}",
        "bad records in a request with many lines": f"{http._MOST_BAD:,}",
        f"what is being accepted, in all: bodies on their way, a bad record as {bodies._OF_A_FAULT >> 10} KiB more, and"
        " messages that wait for a commit": "32 to 64 MiB",
        "until the head of a request is there, TLS included": f"{HEAD_WITHIN_S} s",
        "until a body is there": f"{bodies._WITHIN_S} s",
        "until an answer is read": f"{http_connection._READ_WITHIN_S} s",
        "answers that wait for their readers, in all": (
            f"{mib(answers._MOST)} for answers above {answers._SMALL >> 10} KiB. If they are taken, an answer that "
            f"has been on its way for {answers._SLOW_S} s"
        ),
        "connections that wait for their clients, of each port": str(ports._CONNECTIONS),
        "connections whose clients do not read their answers, of each port": "the same",
        "requests at a time": str(REQUESTS),
        "among them those for pages, single messages, metrics and `/status`": (
            "{pages}, {messages}, {metrics} and {status}".format(**threads)
        ),
        "tests of destinations": f"{threads['destination-tests']} in all",
    }
    assert known.keys() == told.keys() - {"---"}
    assert [what for what, bound in known.items() if bound not in told[what]] == []


def test_every_limit_of_a_request_is_told_as_it_is__D12() -> None:
    told: Any = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())

    def says(method: str, path: str, *texts: str) -> bool:
        return all(text in " ".join(told["paths"][path][method]["description"].split()) for text in texts)

    of_streams = f"{arrow_bodies.MOST_ROWS:,} rows and {mib(arrow_bodies.MOST_BYTES)}"
    assert says("post", "/messages", f"{http._OVERHEAD >> 10} KiB", mib(http._MANY), of_streams)
    assert says("post", "/hand-off", of_streams)
    assert says("patch", "/messages/{id}", f"{http._OVERHEAD >> 10} KiB")
    assert says("post", "/requeue", mib(2 * http._LONGEST_NAME))
    assert says("post", "/actions", mib(actions._MOST))
    slow = told["components"]["responses"]["Slow"]["description"]
    assert f"within {bodies._WITHIN_S} s" in slow
    assert told["components"]["parameters"]["limit"]["schema"]["maximum"] == MOST
    latest = next(it for it in told["paths"]["/messages"]["post"]["parameters"] if it["name"] == "at_latest_ms")
    assert latest["schema"]["maximum"] == 10**http._MOST_DIGITS - 1
    assert told["components"]["schemas"]["Record"]["properties"]["every"]["maximum"] == MAX_DUE_MS


def mib(size: int) -> str:
    return f"{size >> 20} MiB"


def _flags(cell: str) -> Iterator[str]:
    yield from re.findall(r"(?<![\w-])--?[a-z][a-z-]*", cell.partition(" ")[0] if ", " not in cell else cell)


def _code() -> str:
    """What is set as code."""
    return "\n".join([_shell(), *re.findall(r"`([^`\n]+)`", text())])


def _shell() -> str:
    return "\n".join(re.findall(r"^```(?:sh|console|text)\n(.*?)^```", text(), re.MULTILINE | re.DOTALL))
