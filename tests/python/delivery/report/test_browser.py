"""The page in a real browser, on a narrow screen and on a wide one (rule D11)."""

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(120)

FilledStore = Any  # of conftest.py
MEASURE = """<script>addEventListener("load", () => {
  const right = it => it.getBoundingClientRect().right;
  const wide = [...document.querySelectorAll("body *")].filter(it => right(it) > innerWidth + 0.5);
  const charts = [...document.querySelectorAll("svg")].filter(it => it.getBoundingClientRect().width > 0);
  const size = it => parseFloat(getComputedStyle(it).fontSize) * it.ownerSVGElement.getScreenCTM().a;
  const sizes = charts.flatMap(it => [...it.querySelectorAll("text")].map(size));
  const boxes = charts.map(it => [...it.querySelectorAll("text")].map(text => text.getBoundingClientRect()));
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const overlaps = boxes.flatMap(all => all.filter((a, n) => all.some((b, m) => m > n && meet(a, b))));
  parent.postMessage([innerWidth, document.documentElement.scrollWidth,
    wide.length, charts.length, Math.min(...sizes).toFixed(1), overlaps.length].join(" "), "*");
});</script></html>"""
FRAME = """<!DOCTYPE html><script>
  addEventListener("message", it => document.documentElement.setAttribute("data-found", it.data));
</script><iframe src="page.html" width="WIDTH" height="900" style="border: 0"></iframe>"""


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("there is no chromium: apt-get install chromium")
    if found is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    return found


def browse(chromium: str, folder: Path, width: int, *args: str) -> str:
    shown = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={width},1000",
    ]
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [*shown, profile, *args, (folder / "shown.html").as_uri()], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(chromium: str, folder: Path, page: str, width: int) -> list[str] | None:
    """The script's measurements of the page, in a frame of this width, because a window can't be so narrow."""
    (folder / "page.html").write_text(page.replace("</html>", MEASURE), encoding="utf-8")
    (folder / "shown.html").write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    found = re.search(r'data-found="([^"]*)"', browse(chromium, folder, 1400, "--dump-dom"))
    return found[1].split() if found else None


@pytest.mark.parametrize("width", [360, 390, 1200])
@pytest.mark.parametrize("store", ["nasty", "usual", "empty"])
def test_it_fits_on_the_screen_and_can_be_read__D11(
    chromium: str, tmp_path: Path, desk: FilledStore, request: pytest.FixtureRequest, store: str, width: int
) -> None:
    if store == "nasty":
        request.getfixturevalue("nasty")
    if store == "usual":
        desk.fill(2)
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", desk.page(), count=1)
    found = measured(chromium, tmp_path, page, width)
    assert found is not None, "the measuring script has not run"
    inner, scroll, too_wide, charts, smallest, overlaps = found
    assert int(inner) == width
    assert int(scroll) <= width
    assert (int(too_wide), int(charts)) == (0, 0 if store == "empty" else 3)
    assert store == "empty" or float(smallest) >= 10, "pixels of the smallest letters in a chart"
    assert int(overlaps) == 0, "labels overlap"


def test_its_own_policy_lets_no_script_run__D12(chromium: str, tmp_path: Path, desk: FilledStore) -> None:
    assert measured(chromium, tmp_path, desk.page(), 390) is None


def test_a_picture_of_it_can_be_taken__D11(chromium: str, tmp_path: Path, nasty: FilledStore) -> None:
    (tmp_path / "shown.html").write_text(nasty.page(), encoding="utf-8")
    picture = tmp_path / "page.png"
    browse(chromium, tmp_path, 390, f"--screenshot={picture}")
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (390, 1000)
    assert len(data) > 20_000, "a blank page takes a few thousand bytes"
