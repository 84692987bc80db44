"""`tickwheel list` and `dead` on a terminal: the titles are words, not escapes (rule D14)."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tickwheel.delivery import DeliveryQueue

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("command", ["list", "dead"])
def test_a_table_on_a_terminal_has_words_for_titles__D14(command: str, columns: int, tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=print) as queue:
        queue.put("tea", due=4_000_000_000_000)
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "tickwheel", command, store],
        stdin=side,
        stdout=side,
        stderr=side,
        env={**environment, "TERM": "xterm"},
    ) as process:
        os.close(side)
        shown = b""
        try:
            while part := os.read(main, 65_536):
                shown += part
        except OSError:  # the other side is closed
            pass
    os.close(main)
    assert process.returncode == 0
    assert b"\\u001b" not in shown
