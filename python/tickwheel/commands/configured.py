"""Options from a file and from the environment too: the command line counts first, then the environment, then the file.

    tickwheel serve --config serve.toml        max-payload = 65536
    TICKWHEEL_SERVE_MAX_PAYLOAD=65536          --max-payload 65536

click looks the values up and checks them; each option of the command has all three forms. Here the file is read: each
name in it is an option without its dashes, and click gets the value as the text that the command line would have. An
unknown name is an error. A variable that names no option is a warning only: other programs may set it, as Kubernetes
does for each service.

Relative paths start at the working directory, wherever they are from.
"""

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

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
        found = tomllib.loads(text)
    except OSError as error:
        raise click.UsageError(f"--config {path} can't be read: {error.strerror}", ctx) from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--config {path} is not in UTF-8: save it as text in UTF-8", ctx) from error
    except ValueError as error:
        raise click.UsageError(f"--config {path} is no TOML: {error}", ctx) from error
    assert isinstance(ctx.command, ConfiguredCommand)
    options, values = ctx.command.options, {}
    for name, value in found.items():
        where = f"--config {path}: {name[:_LONGEST]}"
        if isinstance(value, dict):
            raise click.UsageError(f"{where} is a table: write the options without one", ctx)
        if name not in options:
            raise click.UsageError(f"--config {path}: {_unknown(name, options)}", ctx)
        option = options[name]
        if isinstance(value, list) != option.multiple:
            raise click.UsageError(f"{where} may be {'a list' if option.multiple else 'one value, no list'}", ctx)
        if isinstance(value, bool) and not option.is_flag:
            raise click.UsageError(f"{where} is {str(value).lower()}: write a value, or leave it out", ctx)
        values[option.name] = [_text(each) for each in value] if option.multiple else _text(value)
        if "\0" in "".join(values[option.name]):
            raise click.UsageError(f"{where} has a NUL byte, which no option may have: take it out", ctx)
    ctx.default_map = values
    ctx.meta[__name__] = path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
