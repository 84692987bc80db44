"""The text that `tickwheel` prints without a subcommand: what to try first. Each command in it works as it stands."""

from importlib.util import find_spec

from tickwheel import __version__

_WELCOME = r"""tickwheel {version}: a timer for very many deadlines, and
messages that are delivered when they are due. Try it:

Three messages, due in 1, 2 and 3 seconds:
  printf '{{"id":"%s","delay_ms":%s000}}\n' a 1 b 2 c 3 |
    tickwheel deliver -

A service that keeps messages in the file hello.db. Ctrl-C
ends it, and its next start delivers what is left:
{install}  tickwheel serve --store hello.db
Then, from another terminal:
  curl localhost:7400/messages \
    -d '{{"id": "d", "delay_ms": 3000}}'

The timer in Python:
  python -c 'import tickwheel; help(tickwheel.SystemTimer)'

All commands:
  tickwheel --help"""

_INSTALL = "  pip install 'tickwheel[serve]'\n"


def first_steps() -> str:
    """Return the text. It fits on a terminal of 60 columns and 24 lines."""
    has_server = find_spec("uvicorn") is not None  # only the extra `serve` needs it
    return _WELCOME.format(version=__version__, install="" if has_server else _INSTALL)
