"""`tickwheel list` and `dead` on a terminal: the titles are words, not escapes, and no column is lost (rule D14)."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tickwheel.delivery import DeliveryQueue

pytestmark = pytest.mark.timeout(60)


def on_terminal(columns: int, *command: str | Path) -> str:
    """What a command prints on a terminal of this width."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "tickwheel", *command],
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
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("command", ["list", "dead"])
def test_a_table_on_a_terminal_has_words_for_titles__D14(command: str, columns: int, tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, to=print) as queue:
        queue.put("tea", due=4_000_000_000_000)
    assert "\\u001b" not in on_terminal(columns, command, store)


ROWS = [
    {"due": "2096-10-02T07:06:40.000Z", "id": "invoice 17", "key": "customer acme", "destination": "letters"},
    {"due": "2096-10-02T07:06:40.000Z", "id": "0190b1f4-7e3a-7c11-9d8e-2b6f0c1a9f10", "destination": "letters"},
]


@pytest.mark.parametrize(("columns", "is_table"), [(40, False), (60, False), (80, True)])
def test_each_column_is_read_at_each_width__D14(columns: int, is_table: bool, tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with DeliveryQueue(store, handlers={"letters": print}) as queue:
        for row in ROWS:
            queue.put(payload=None, **row)
    shown = on_terminal(columns, "list", store)
    if is_table:
        [titles, first, *_] = shown.splitlines()
        assert titles.split() == [*ROWS[0]]
        assert re.split("  +", first) == [*ROWS[0].values()]
        assert max(map(len, shown.splitlines())) <= columns
    else:
        assert [dict(re.findall("^([a-z]+): +(.+)$", row, re.M)) for row in shown.split("\n\n")] == ROWS
