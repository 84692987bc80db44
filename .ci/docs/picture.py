"""Takes the picture of a service's page for README and `docs/pages.md`.

    make .venv/release && .venv/bin/python .ci/docs/picture.py

It starts `tickwheel serve`, gives it messages that are due in the next hours and some that are due in each second, and
takes the picture after two minutes.
"""

import http.client
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[2] / "docs/page.png"
SECONDS = 120
PER_S = 30


def main() -> None:
    """Start, load, look, stop."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tickwheel", "serve", "--store", f"{folder}/reminders.db"]
        command += ["--to", f"file:{folder}/out", "--listen", "127.0.0.1:0"]
        with (
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server,  # noqa: S603, its own command
            sync_playwright() as playwright,
        ):
            assert server.stderr is not None
            try:
                port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())[0])
                load(port)
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1200, "height": 800})
                page.goto(f"http://127.0.0.1:{port}/")
                page.wait_for_timeout(SECONDS * 1000)
                page.screenshot(path=PICTURE)
                browser.close()
            finally:
                server.terminate()


def load(port: int) -> None:
    """Messages for the time in which the page is open, and for the hours after it."""
    chance = random.Random(1)  # noqa: S311, nothing is secret here
    now_ms = time.time_ns() // 1_000_000
    soon_ms = (chance.random() * SECONDS * 2_000 for _ in range(2 * SECONDS * PER_S))
    later_ms = (chance.betavariate(1.3, 3) * 18 * 3_600_000 for _ in range(400_000))
    lines = (
        json.dumps({"id": str(n), "key": f"customer {n % 5_000}", "due": now_ms + 3_000 + int(in_ms)})
        for n, in_ms in enumerate(chain(soon_ms, later_ms))
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while part := [line for line, _ in zip(lines, range(20_000), strict=False)]:
        connection.request("POST", "/messages", "\n".join(part), {"content-type": "application/x-ndjson"})
        connection.getresponse().read()


if __name__ == "__main__":
    main()
