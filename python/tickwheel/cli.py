"""The command `tickwheel`: starts `tickwheel.commands`, or says what to install if its libraries are missing."""

import signal
import sys

from tickwheel._stopping import exit_code, stopped_by_signals

_LIBRARIES = {"click", "rich", "msgspec"}


def main() -> None:
    """Run the command line. Ends the process."""
    is_serve = sys.argv[1:2] == ["serve"]
    try:
        if is_serve:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it reads the files that this would read again
        with stopped_by_signals():
            from tickwheel.commands import tickwheel

            tickwheel(prog_name="tickwheel")
    except KeyboardInterrupt as stop:  # while it is imported; later ones end in the commands
        sys.exit(exit_code(stop))
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARIES:
            raise
        sys.exit(f"tickwheel: {error.name} is not installed: run pip install 'tickwheel[delivery]'")
    finally:  # Python's own end has no place for handlers
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # it would print a traceback
        if is_serve:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it would kill, as the handler is taken away


if __name__ == "__main__":
    main()
