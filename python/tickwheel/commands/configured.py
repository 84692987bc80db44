"""Options from a file and from the environment too: the command line counts first, then the environment, then the file.

    tickwheel serve --config serve.toml        max-payload = 65536
    TICKWHEEL_SERVE_MAX_PAYLOAD=65536          --max-payload 65536

click looks the values up; each option of the command has all three forms. Here the file is read and checked: each name
in it is an option without its dashes, and its value has the option's type. An unknown name is an error. A variable that
names no option is a warning only: other programs may set it, as Kubernetes does for each service.

Relative paths start at the working directory, wherever they are from.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from tickwheel.commands.durations import Duration
from tickwheel.commands.paths import GivenPath
from tickwheel.commands.printing import say

_LONGEST: Final = 200  # characters of a value in an error
_NOT_OPTIONS: Final = ("config", "show_config", "help")


class ConfiguredCommand(click.Command):
    """A command with `--config` and `--show-config`. It needs `auto_envvar_prefix` in its `context_settings`. If the
    type of an option has a function `shown`, this function gives the text for `--show-config`, which must print no
    secret.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        path = GivenPath(dir_okay=False, path_type=Path)
        file = click.Option(["--config"], metavar="FILE", type=path, is_eager=True, expose_value=False, callback=_read,
                            help="Read options from FILE (TOML), where neither the command line nor the environment "
                            "has them.")  # fmt: skip
        show = click.Option(["--show-config"], is_flag=True, allow_from_autoenv=False,
                            help="Print each option with its value, and where that is from; then end.")  # fmt: skip
        self.params += [file, show]

    @property
    def options(self) -> Mapping[str, click.Option]:
        """The options that may be in a file, by their names there."""
        found = (each for each in self.params if isinstance(each, click.Option) and each.name not in _NOT_OPTIONS)
        return {each.opts[-1].removeprefix("--"): each for each in found}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An error about a wrong value also says where the value is from."""
        _end_variables(self, ctx)
        for line in _unknown_variables(self, ctx):
            say(f"Warning: {line}", err=True)
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            if (where := error.param and _source_of(ctx, error.param)) not in (None, "command line", "default"):
                text = f"{error.message.rstrip('.')}. It is from {where}."
                raise click.BadParameter(text, error.ctx, error.param) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or show what it would be run with."""
        if ctx.params.pop("show_config"):
            for line in _shown(self, ctx):
                say(line)
            return None
        return super().invoke(ctx)


def _read(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    """Take the values of the file."""
    if path is None:
        return
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte order mark
        if "\0" in text:
            line = text[: text.index("\0")].count("\n") + 1
            raise click.UsageError(f"--config {path}, line {line}, has a NUL byte: save it as text in UTF-8", ctx)
        found = tomllib.loads(text)
    except OSError as error:
        raise click.UsageError(f"--config {path} can't be read: {error.strerror}", ctx) from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--config {path} is not in UTF-8: save it as text in UTF-8", ctx) from error
    except ValueError as error:
        raise click.UsageError(f"--config {path} is no TOML: {error}", ctx) from error
    assert isinstance(ctx.command, ConfiguredCommand)
    options = ctx.command.options
    for name, value in found.items():
        where = f"--config {path}{_line_of(name, text)}"
        if isinstance(value, dict):
            raise click.UsageError(f"{where}: {name} is a table: write the options without one", ctx)
        if name not in options:
            raise click.UsageError(f"{where}: {_unknown(name, options)}", ctx)
        if (allowed := _allowed(options[name], value)) is not None:
            is_shown = not hasattr(options[name].type, "without_secrets")
            given = f"is {_toml(value)[:_LONGEST]}: it" if is_shown else "has a value of the wrong type: it"
            raise click.UsageError(f"{where}: {name} {given} may be {allowed}", ctx)
        if any("\0" in str(each) for each in (value if isinstance(value, list) else [value])):
            raise click.UsageError(f"{where}: {name} has a NUL byte, which no option may have: take it out", ctx)
    ctx.default_map = {options[name].name: value for name, value in found.items()}
    ctx.meta[__name__] = path


def _allowed(option: click.Option, value: object) -> str | None:
    """The allowed type as a text, if this value has another type."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if option.is_flag:
        return None if isinstance(value, bool) else "true or false"
    if option.multiple:
        is_fine = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return None if is_fine else 'a list of texts, as in ["..."]'
    if option.type is click.INT:
        return None if is_number and isinstance(value, int) else "a whole number, without quotes"
    if isinstance(option.type, Duration):
        return None if is_number or isinstance(value, str) else 'a number, or a text as "30s"'
    if option.type is click.FLOAT:
        return None if is_number else "a number, without quotes"
    return None if isinstance(value, str) else f"a text, {option.metavar or 'as --help says'}, in quotes"


def _line_of(name: str, text: str) -> str:
    """The line of the name in the file, because tomllib does not tell it."""
    place = re.search(rf"^[ \t\[]*[\"']?{re.escape(name)}\b", text, re.MULTILINE)
    return f", line {text.count(chr(10), 0, place.start()) + 1}" if place else ""


def _unknown(name: str, known: Mapping[str, object]) -> str:
    near = " or ".join(_near(name, known))
    return f"{name[:_LONGEST]} is no option: " + (f"write {near}" if near else f"there are {', '.join(known)}")


def _near(name: str, known: Iterable[str]) -> Sequence[str]:
    """The options that may have been meant: all that begin so, or the most similar one. There may be none."""
    name, known = name.replace("_", "-").lower(), list(known)
    return [each for each in known if each.startswith(f"{name}-")] or get_close_matches(name, known, 1)


def _end_variables(command: ConfiguredCommand, ctx: click.Context) -> None:
    """Take a line end off the values, as `$(cat FILE)` in a file of variables and mounted secrets have one."""
    for option in command.params:
        if (value := os.environ.get(name := _variable(ctx, option))) is not None:
            os.environ[name] = value.rstrip("\r\n")


def _unknown_variables(command: ConfiguredCommand, ctx: click.Context) -> Iterator[str]:
    known = {name: _variable(ctx, option) for name, option in command.options.items()}
    prefix = f"{ctx.auto_envvar_prefix}_"
    for name in sorted(os.environ):
        if name.startswith(prefix) and name not in (*known.values(), f"{prefix}CONFIG"):
            near = " or ".join(known[each] for each in _near(name.removeprefix(prefix), command.options))
            yield f"the variable {name} names no option" + (f": write {near}" if near else ", and is not used")


def _variable(ctx: click.Context, option: click.Parameter) -> str:
    return f"{ctx.auto_envvar_prefix}_{str(option.name).upper()}"


def _source_of(ctx: click.Context, option: click.Parameter) -> str | None:
    match ctx.get_parameter_source(str(option.name)):
        case ParameterSource.COMMANDLINE:
            return "command line"
        case ParameterSource.ENVIRONMENT:
            return _variable(ctx, option)
        case ParameterSource.DEFAULT_MAP:
            return str(ctx.meta[__name__])
    return "default"


def _shown(command: ConfiguredCommand, ctx: click.Context) -> Iterator[str]:
    """Each option as it would stand in a file, with a comment."""
    rows = [(name, _shown_value(ctx, option), _source_of(ctx, option)) for name, option in command.options.items()]
    left = [f"# {name}" if value is None else f"{name} = {value}" for name, value, _ in rows]
    width = min(40, max(map(len, left)))
    for text, (_, value, source) in zip(left, rows, strict=True):
        yield f"{text:{width}}  # {'not set' if value is None else source}"


def _shown_value(ctx: click.Context, option: click.Option) -> str | None:
    value = ctx.params[str(option.name)]
    if isinstance(value, tuple) and not option.multiple:
        return _toml(",".join(f"{each:g}" for each in value))
    show: Callable[[Any], str] = getattr(option.type, "without_secrets", lambda it: it)
    if option.multiple:
        return _toml([show(each) for each in value]) if value else None
    return None if value is None else _toml(show(value))


def _toml(value: object) -> str:
    """A value as TOML has it. It writes its texts, numbers and lists as JSON does."""
    return json.dumps(value, ensure_ascii=False, default=str)
