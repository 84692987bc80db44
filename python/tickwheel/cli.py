"""The command `tickwheel`: starts `tickwheel.commands`, or says what to install if its libraries are missing."""

import signal
import sys

from tickwheel._stopping import REQUESTS, stopped_by_signals

_LIBRARIES = {"click", "rich", "msgspec"}


def main() -> None:
    """Run the command line. Ends the process."""
    is_serve = sys.argv[1:2] == ["serve"]
    try:
        if is_serve:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it reads the files that this would read again
        with stopped_by_signals(numbers=REQUESTS):
            from tickwheel.commands import tickwheel

            tickwheel(prog_name="tickwheel")
    except KeyboardInterrupt:  # while it is imported; later ones end in the commands
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARIES:
            raise
        sys.exit(f"tickwheel: {error.name} is not installed: run pip install 'tickwheel[delivery]'")
    finally:
        if is_serve:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Python takes handlers away at its end: it would kill then


if __name__ == "__main__":
    main()
