"""Writes what `docs/configuration.md` says of each command, from the options in the code.

    python .ci/docs/commands.py            writes the page
    python .ci/docs/commands.py --check    ends with 1 if the page is not as the code is

The part between the two marks is written; what is around it is by hand.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

from tickwheel.commands import tickwheel
from tickwheel.commands.configured import ConfiguredCommand
from tickwheel.commands.spark_submit import program  # its options stand behind those of Spark

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
BEGIN, END = "<!-- made by .ci/docs/commands.py: begin -->", "<!-- made by .ci/docs/commands.py: end -->"


def made() -> str:
    """The part of the page between the marks."""
    context, told = click.Context(tickwheel, info_name="tickwheel"), dict[tuple[str, str], str]()
    commands = tickwheel.commands.items()
    for name, command in commands:  # a command with variables and a file says all of its options, others refer to it
        if isinstance(command, ConfiguredCommand):
            told |= {(option.opts[-1], _meaning(option)): f"tickwheel {name}" for option in _options(command)}
    targets = defaultdict[str, list[str]](list)  # what TARGET is, with the commands of which this is said
    lines = [line for name, command in commands for line in _command(command, name, context, told, targets)]
    said = [f"- {', '.join(f'`{name}`' for name in names)}: {text}" for text, names in targets.items()]
    return "\n".join(["## TARGET\n", *said, "", *lines])


def page() -> str:
    """The page as it has to be."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made()}\n{END}{after}"


def _command(
    command: click.Command,
    name: str,
    parent: click.Context,
    told: dict[tuple[str, str], str],
    targets: dict[str, list[str]],
) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    if isinstance(command, click.Group):
        for each in command.commands:
            yield from _command(command.commands[each], each, context, told, targets)
        return
    yield f"## {context.command_path}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    if usage != "[OPTIONS] TARGET":
        yield f"`{context.command_path} {usage}`\n"
    for paragraph in _text(command):
        if paragraph.startswith("TARGET is a file"):
            targets[paragraph.removeprefix("TARGET is ")].append(context.command_path.removeprefix("tickwheel "))
        else:
            yield f"{paragraph}\n"
    options = _options(program if name == "spark-submit" else command)
    if not options:
        yield "It has no options.\n"
        return
    for first, several in groupby(options, lambda option: _first(option, context, told)):
        if first != context.command_path:
            flags = ", ".join(flag for option in several for flag in option.opts)
            yield f"- `{flags}`: as [{first.removeprefix('tickwheel ')}](#{first.replace(' ', '-')})"
            continue
        for option in several:
            yield f"- {_names(option, context)}: {' '.join(filter(None, (_meaning(option), _default(option))))}"
    yield ""


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def _first(option: click.Option, context: click.Context, told: dict[tuple[str, str], str]) -> str:
    """The command whose options say this."""
    first = told.setdefault((option.opts[-1], _meaning(option)), context.command_path)
    return context.command_path if option.required else first


def _text(command: click.Command) -> list[str]:
    paragraphs = (command.help or "").partition("\f")[0].split("\n\n")
    return [_escaped(" ".join(each.split())) for each in paragraphs]


def _names(option: click.Option, context: click.Context) -> str:
    """As on the command line; of a configured command also as a variable."""
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    names = [f"`{', '.join(option.opts)}{value}`"]
    if isinstance(context.command, ConfiguredCommand) and option.allow_from_autoenv:
        names.append(f"`{context.auto_envvar_prefix}_{str(option.name).upper()}`")
    return ", ".join(names)


def _default(option: click.Option) -> str:
    if option.required:
        return "Required."
    if option.is_flag:
        return ""
    default = option.to_info_dict()["default"] if option.default is not None else None
    if default is None or callable(default) or option.multiple:
        return ""
    return f"By default `{default}`."


def _meaning(option: click.Option) -> str:
    text = _escaped(" ".join((option.help or "").split()))
    if isinstance(option.type, click.IntRange | click.FloatRange) and option.type.min is not None:
        high = f" to {option.type.max:,}" if option.type.max is not None else " or more"
        text += f" {option.type.min:,}{high}."
    return text


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")


def main() -> None:
    """Write the page, or check it."""
    if "--check" not in sys.argv:
        PAGE.write_text(page(), "utf-8")
    elif PAGE.read_text("utf-8") != page():
        sys.exit(f"{PAGE.name} is not as the options are: run make docs, or {sys.executable} {__file__}")


if __name__ == "__main__":
    main()
