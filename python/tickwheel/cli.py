"""The command `tickwheel`: starts `tickwheel.commands`, or says what to install if its libraries are missing."""

import signal
import sys

_LIBRARIES = {"click", "rich", "msgspec"}


def main() -> None:
    """Run the command line. Ends the process."""
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _stop)  # until a command has its own handlers
        if sys.argv[1:2] == ["serve"]:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it reads the files that this would read again
        from tickwheel.commands import tickwheel

        tickwheel(prog_name="tickwheel")
    except KeyboardInterrupt:  # while it is imported; later ones end in the commands
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARIES:
            raise
        sys.exit(f"tickwheel: {error.name} is not installed: run pip install 'tickwheel[delivery]'")


def _stop(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


if __name__ == "__main__":
    main()
