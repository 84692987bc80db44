"""The options of `serve` from a file, the environment and the command line, and what `--show-config` says of them."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tickwheel.commands import tickwheel
from tickwheel.commands.deliver import deliver
from tickwheel.commands.durations import Duration
from tickwheel.commands.options import delivery_options, settings_of
from tickwheel.commands.serve import serve
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings

EXAMPLE = Path(__file__).parents[3] / "ops/serve.toml"
OPTIONS: dict[str, click.Option] = {
    name: option
    for name, option in serve.options.items()  # type: ignore[attr-defined]
    if not option.hidden
}


def shown(folder: Path, text: str | None, *more: str, **env: str) -> Result:
    """`serve --show-config` with this file."""
    config = folder / "serve.toml"
    config.write_text(text or "", "utf-8")
    file = [] if text is None else ["--config", str(config)]
    return CliRunner().invoke(tickwheel, ["serve", "--show-config", *file, *more], env=env)


def lines_of(result: Result) -> dict[str, tuple[Any, str]]:
    """The value and the source of each option that has one."""
    assert result.exit_code == 0, result.output
    rows = (re.split(" +# ", line) for line in result.stdout.splitlines() if not line.startswith("#"))
    return {name: (value, source) for text, source in rows for name, value in tomllib.loads(text).items()}


def some_value(option: click.Option) -> Any:
    """One that is not the default."""
    if option.is_flag:
        return True
    if option.multiple:
        return ["X-A: env:A", "X-B: file:b c"]
    if isinstance(option.type, click.Choice):
        return option.type.choices[-1]
    if option.name == "backoff":
        return "2.5,400"
    if option.name in ("waits", "final_status"):
        return "5,7200" if option.name == "waits" else "422,403"
    if isinstance(option.type, Duration):
        return 17.5
    return {click.INT: 17}.get(option.type, "file:else/where")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_taken_from_the_command_line_a_variable_and_the_file(tmp_path: Path, name: str) -> None:
    option, value = OPTIONS[name], some_value(OPTIONS[name])
    need = [] if name == "store" else ["--store", "s"]
    each = value if isinstance(value, list) else [value]
    line = [f"--{name}"] if value is True else [part for it in each for part in (f"--{name}", str(it))]
    variable = f"TICKWHEEL_SERVE_{name.upper().replace('-', '_')}"
    file = f"{name} = {json.dumps(value)}\n"

    assert lines_of(shown(tmp_path, None, *line, *need))[name] == (value, "command line")
    assert lines_of(shown(tmp_path, None, *need, **{variable: "\n".join(map(str, each))}))[name] == (value, variable)
    assert lines_of(shown(tmp_path, file, *need))[name] == (value, str(tmp_path / "serve.toml"))
    assert option.required or name not in lines_of(shown(tmp_path, "", *need)) or option.default is not None


def test_the_command_line_is_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = 'store = "s"\nhorizon = 1\nmax-attempts = 1\nkeep-ids = 1\n'
    variables = {"TICKWHEEL_SERVE_HORIZON": "2", "TICKWHEEL_SERVE_MAX_ATTEMPTS": "2"}
    found = lines_of(shown(tmp_path, file, "--horizon", "3", **variables))
    assert found["horizon"] == (3, "command line")
    assert found["max-attempts"] == (2, "TICKWHEEL_SERVE_MAX_ATTEMPTS")
    assert found["keep-ids"] == (1, str(tmp_path / "serve.toml"))
    assert found["sink-timeout"] == (30, "default")


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "by-variable.toml").write_text('store = "s"\n')
    variables = {"TICKWHEEL_SERVE_CONFIG": str(tmp_path / "by-variable.toml")}
    assert lines_of(shown(tmp_path, None, **variables))["store"] == ("s", str(tmp_path / "by-variable.toml"))


def test_what_is_shown_can_be_used_as_a_file(tmp_path: Path) -> None:
    first = shown(tmp_path, 'store = "a \\"b\\" ü.db"\nbackoff = "2,3"\nno-tls = true\n')
    second = shown(tmp_path, first.stdout)
    assert {name: value for name, (value, _) in lines_of(first).items()} == {
        name: value for name, (value, _) in lines_of(second).items()
    }


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ('store = "s"\n\nmax_payload = 3', "serve.toml: max_payload is no option: write max-payload"),
        ('store = "s"\ntoken-fil = "t"', "token-fil is no option: write token-file"),
        ("zzz = 1", "zzz is no option: there are store, to,"),
        ("show-config = true", "show-config is no option"),
        ('[serve]\nstore = "s"', "serve is a table: write the options without one"),
        ('store = "s"\nmax-payload = 3.5', "'3.5' is not a valid integer. It is from {folder}/serve.toml."),
        ('store = "s"\nmax-attempts = true', "max-attempts is true: write a value, or leave it out"),
        ('store = "s"\ndead-letters = false', "dead-letters is false: write a value, or leave it out"),
        (
            'store = "s"\nhorizon = "3 apples"',
            "'3 apples' is no duration: write a number with ms, s, m, h or d, as 30s",
        ),
        ("backoff = [1, 300]", "backoff may be one value, no list"),
        ('store = "s"\nwebhook-header = "A: env:A"', "webhook-header may be a list"),
        ('store = "s"\nno-tls = "maybe"', "'maybe' is not a valid boolean"),
        ('store = "s"\norder = "all"', "'all' is not one of 'key', 'global'. It is from {folder}/serve.toml."),
        ('store = "s"\nbackoff = "1"', "'1' is not two durations: write FIRST,LONGEST, as 1s,5m. It is from"),
        ('store = "s', "is no TOML: "),
        ("tls = true", "tls is no option: write tls-cert or tls-key or tls-client-ca"),
        ("token = 't'", "token is no option: write token-file"),
        ('\nstore = "a\0"', "is no TOML: "),
        ('\nstore = "a\\u0000"', "store has a NUL byte, which no option may have: take it out"),
        ('webhook-header = ["A: \\u0000"]', "webhook-header has a NUL byte"),
    ],
)
def test_a_file_that_is_wrong_is_told_what_is_allowed(tmp_path: Path, file: str, problem: str) -> None:
    result = shown(tmp_path, file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem.format(folder=tmp_path) in result.stderr


@pytest.mark.parametrize(
    ("given", "waits_s"),
    [
        ("5s,5m,30m,2h", (5, 300, 1_800, 7_200)),
        ("5", (5,)),
        ("1d", (86_400,)),
        (" 0.5s , 2 m,7 ", (0.5, 120, 7)),
    ],
)
def test_waits_are_a_list_of_times_with_units__D6(given: str, waits_s: tuple[float, ...]) -> None:
    command = click.command()(delivery_options(lambda **_: None))
    with command.make_context("x", ["--waits", given]) as context:
        assert context.params["waits"] == waits_s
        expected = Settings(retry=Retry(waits_ms=tuple(wait_s * 1_000 for wait_s in waits_s)))
        assert settings_of(context.params) == expected
    for shared in (serve, deliver):
        assert {option.name for option in command.params} <= {option.name for option in shared.params}


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        ("horizon", "10s", 10),
        ("horizon", "0.5m", 30),
        ("horizon", "2e1", 20),
        ("sink-timeout", "250ms", 0.25),
        ("unanswered-for", "24 h", 86_400),
        ("keep-ids", "36h", 1.5),
        ("keep-ids", "2", 2),
        ("backoff", "500ms,5m", (0.5, 300)),
    ],
)
def test_a_duration_has_any_unit__D11(option: str, given: str, value: object) -> None:
    for command, arguments in ((serve, ["--store", "s"]), (deliver, ["-"])):
        with command.make_context("x", [*arguments, f"--{option}", given]) as context:
            assert context.params[option.replace("-", "_")] == value


def test_a_duration_in_a_file_is_a_number_or_a_text__D11(tmp_path: Path) -> None:
    found = lines_of(shown(tmp_path, 'store = "s"\nhorizon = 2.5\nkeep-ids = "12h"\nsink-timeout = "3"'))
    assert [found[name][0] for name in ("horizon", "keep-ids", "sink-timeout")] == [2.5, 0.5, 3]


@pytest.mark.parametrize(("given", "told"), [("5 minutes", "'5 minutes' is no duration"), ("", "'' is no duration")])
def test_text_that_is_no_duration_says_how_to_write_one__D11(given: str, told: str) -> None:
    result = CliRunner().invoke(tickwheel, ["serve", "--store", "s", "--horizon", given])
    assert told in " ".join(result.stderr.split())
    assert "a number alone is seconds" in " ".join(result.stderr.split())


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    result = shown(tmp_path, None, "--config", str(tmp_path / "none"))
    assert f"--config {tmp_path / 'none'} can't be read: No such file or directory" in result.stderr
    for data in (b"\xff", 'store = "s"'.encode("utf-16")):
        (tmp_path / "odd").write_bytes(data)
        result = shown(tmp_path, None, "--config", str(tmp_path / "odd"))
        assert "odd is not in UTF-8: save it as text in UTF-8" in result.stderr


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    found = lines_of(shown(tmp_path, '\ufeffstore = "s"\r\n'))
    assert found["store"] == ("s", str(tmp_path / "serve.toml"))


def test_a_variable_that_is_wrong_is_named(tmp_path: Path) -> None:
    result = shown(tmp_path, None, "--store", "s", TICKWHEEL_SERVE_MAX_PAYLOAD="many")
    assert result.exit_code == 2
    assert "'many' is not a valid integer. It is from TICKWHEEL_SERVE_MAX_PAYLOAD." in result.stderr


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_a_variable_may_end_with_a_line_end(tmp_path: Path, end: str) -> None:
    (tmp_path / "by-variable.toml").write_text("order = 'global'\n")
    variables = {
        "CONFIG": str(tmp_path / "by-variable.toml"),
        "STORE": "s",
        "LISTEN": "127.0.0.1:0",
        "NO_TLS": "true",
        "RATE": "5/s",
        "BACKOFF": "2,3",
        "WEBHOOK_HEADER": "A: env:A\nB: env:B",
    }
    result = shown(tmp_path, None, **{f"TICKWHEEL_SERVE_{name}": value + end for name, value in variables.items()})
    found = {name: value for name, (value, source) in lines_of(result).items() if source != "default"}
    assert found == {
        "store": "s",
        "order": "global",
        "listen": "127.0.0.1:0",
        "no-tls": True,
        "rate": "5/s",
        "backoff": "2,3",
        "webhook-header": ["A: env:A", "B: env:B"],
    }


def test_a_variable_of_a_line_end_only_is_as_none(tmp_path: Path) -> None:
    assert "Missing option '--store'" in shown(tmp_path, None, TICKWHEEL_SERVE_STORE="\n").stderr


def test_a_variable_that_names_no_option_is_a_warning(tmp_path: Path) -> None:
    """Kubernetes sets the second one for a service of that name; the third is not of this command."""
    result = shown(
        tmp_path,
        'store = "s"',
        TICKWHEEL_SERVE_MAX_ATTEMPT="3",
        TICKWHEEL_SERVE_LOG="1",
        TICKWHEEL_SERVE_SERVICE_HOST="10.0.0.1",
        TICKWHEEL_SERVE_TLS="1",
        TICKWHEEL_SOAK="1",
    )
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "Warning: the variable TICKWHEEL_SERVE_LOG names no option, and is not used",
        "Warning: the variable TICKWHEEL_SERVE_MAX_ATTEMPT names no option: write TICKWHEEL_SERVE_MAX_ATTEMPTS",
        "Warning: the variable TICKWHEEL_SERVE_SERVICE_HOST names no option, and is not used",
        "Warning: the variable TICKWHEEL_SERVE_TLS names no option: write TICKWHEEL_SERVE_TLS_CERT or "
        "TICKWHEEL_SERVE_TLS_KEY or TICKWHEEL_SERVE_TLS_CLIENT_CA",
    ]


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("https://user:s3cret@host:8/s3cret?s3cret", "https://host:8/..."),
        ("http://host", "http://host"),
        ("http://host?s3cret", "http://host..."),
        (
            "postgresql://me:s3cret@db/shop?table=t&sslpassword=s3cret",
            "postgresql://...@db/shop?table=t&sslpassword=...",
        ),
        ("kafka://one,two/topic", "kafka://one,two/topic"),
        ("file:out", "file:out"),
    ],
)
def test_no_secret_is_shown__D12(tmp_path: Path, to: str, told: str) -> None:
    file = f'store = "s"\nto = "{to}"\nwebhook-header = ["A: s3cret", "B:file:f", "C: env:V"]'
    result = shown(tmp_path, file)
    assert "s3cret" not in result.output
    found = lines_of(result)
    assert found["to"][0] == told
    assert found["webhook-header"][0] == ["A: ...", "B:file:f", "C: env:V"]


def test_no_secret_is_in_an_error__D12(tmp_path: Path) -> None:
    result = shown(tmp_path, 'store = "s"\nwebhook-header = "Authorization: s3cret"')
    assert "webhook-header may be a list" in result.stderr
    assert "s3cret" not in result.output


def test_the_example_has_every_option_with_its_default(tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[a-z-]+ = )", "", EXAMPLE.read_text("utf-8"), flags=re.MULTILINE)
    given = tomllib.loads(text)
    assert list(given) == list(OPTIONS)
    examples = {name for name, option in OPTIONS.items() if option.default is None or not str(option.default)}
    examples |= {"store", "to", "webhook-header"} | {
        name for name in given if "Sentinel" in repr(OPTIONS[name].default)
    }
    for name in given.keys() - examples:
        assert given[name] == OPTIONS[name].default, name
    assert lines_of(shown(tmp_path, text)).keys() == OPTIONS.keys()
    assert lines_of(shown(tmp_path, EXAMPLE.read_text("utf-8")))["to"] == (
        "https://example.org/...",
        str(tmp_path / "serve.toml"),
    )
