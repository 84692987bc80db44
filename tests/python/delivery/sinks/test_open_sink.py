import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from delivery.delivering import Run
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.sinks import Destination, open_sink, path_of

pytestmark = pytest.mark.timeout(30)

FORMS = [
    "- (standard output)",
    "file:PATH",
    "python:MODULE:FUNCTION",
    "https://HOST/PATH",
    "sqlite:PATH?table=T",
    "postgresql://USER:PASSWORD@HOST/DATABASE?table=T",
    "kafka://BROKERS/TOPIC",
]


def problem_with(spec: str) -> str:
    with pytest.raises(WrongUsage) as error:
        open_sink(spec)
    return str(error.value)


@pytest.mark.parametrize("spec", ["out.ndjson", "", "ftp://host/x", "file:", "-:", "mysql://a:b@c/d", "HTTP://host/"])
def test_what_is_no_destination_is_told_every_form_there_is__D10(spec: str) -> None:
    problem = problem_with(spec)
    assert [form for form in FORMS if form not in problem] == []


def test_a_bare_path_is_told_to_say_file__D10() -> None:
    assert problem_with("out.ndjson").endswith("write file:out.ndjson")
    assert "write file:" not in problem_with("ftp://host/out")


@pytest.mark.parametrize(
    "spec", ["postgres://me:s3cret@db/x?table=T", "mysql://me:s3/cr@et@db/x", "pg://db/x?table=T&password=s3cret"]
)
def test_an_unknown_kind_is_shown_without_its_password__D10(spec: str) -> None:
    assert "s3" not in problem_with(spec)


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("-", "Destination.standard_output()"),
        ("file:out", 'Destination.file("out")'),
        ("file:-", 'Destination.file("-")'),
        (
            "https://host:8/s3cret?s3cret",
            'Destination.http(Webhook { address: HttpAddress(Some("host:8")), headers: [], secrets: 0, .. })',
        ),
        ("python:json:dumps", "Destination.function(...)"),
    ],
)
def test_files_webhooks_and_functions_are_destinations_of_the_engine__D10(spec: str, shown: str) -> None:
    found = open_sink(spec)
    assert isinstance(found, Destination)
    assert repr(found) == shown


def test_a_file_is_made_only_when_its_sink_is_opened__D10(tmp_path: Path) -> None:
    opener = open_sink(f"file:{tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()
    Run(tmp_path, opener).running.close()
    assert (tmp_path / "out").exists()


def test_the_file_that_a_sink_writes_is_known_before_it_is_opened__D10() -> None:
    assert path_of("file:a:b?c") == Path("a:b?c")
    assert path_of("sqlite:x?y?table=T") == Path("x?y")
    assert [path_of(spec) for spec in ("-", "file:", "sqlite:x", "sqlite:?table=T", "https://host/")] == [None] * 5


@pytest.mark.parametrize(
    ("spec", "module", "library", "extra"),
    [
        ("postgresql://db/x?table=T", "postgresql", "psycopg", "postgresql"),
        ("kafka://host/topic", "kafka", "confluent_kafka", "kafka"),
    ],
)
def test_a_library_that_is_not_there_is_told_how_to_install__D10(
    monkeypatch: pytest.MonkeyPatch, spec: str, module: str, library: str, extra: str
) -> None:
    real_import = builtins.__import__

    def without_it(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=library)
        return real_import(name, *args, **more)

    monkeypatch.delitem(sys.modules, f"tickwheel.delivery.sinks.{module}", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_it)
    problem = problem_with(spec)
    assert f"{library}, which" in problem
    assert f"is not installed: run pip install 'tickwheel[{extra}]'" in problem


def test_no_optional_library_is_imported_before_it_is_asked_for__D10() -> None:
    import subprocess

    script = (
        "import sys, tickwheel.delivery.sinks as s; s.open_sink('-'); s.open_sink('sqlite:x?table=T');"
        " print([m for m in ('psycopg', 'confluent_kafka', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
