"""The site in a real browser, as files and without a network: its search, a narrow screen, the dark."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)  # the site is built first
WIDE = 390
# A page tells the frame around it how wide it is, and which of its parts stand out on the right.
MEASURE = """<script>addEventListener("load", () => {
  const isScrolled = it => it.closest("pre, code, .md-typeset__scrollwrap, .md-sidebar, .md-search, .md-top, svg");
  const out = [...document.querySelectorAll(".md-content *")]
    .filter(it => it.getBoundingClientRect().right > innerWidth + 0.5 && !isScrolled(it));
  parent.postMessage([document.documentElement.scrollWidth, ...out.map(it => it.tagName)].join(" "), "*");
});</script></html>"""
FRAME = """<!DOCTYPE html><script>
  addEventListener("message", it => document.documentElement.setAttribute("data-found", it.data));
</script><iframe src="narrow.html" width="WIDTH" height="900" style="border: 0"></iframe>"""
PAGES = [
    *("index.html", "configuration.html", "operations.html", "metrics.html", "tutorial/service.html"),
    *("delivery/http.html", "delivery/records.html", "delivery/sinks.html", "reference/timers.html"),
]


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("there is no chromium: apt-get install chromium")
    if found is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    return found


def browse(chromium: str, profile: Path, address: str, *args: str) -> str:
    """What the page is once its scripts have run."""
    shown = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
    offline = ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=10000", "--dump-dom"]
    command = [chromium, *shown, *offline, *args, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_search_finds_a_word_in_pages_that_are_files(chromium: str, site: Path, tmp_path: Path) -> None:
    page = browse(chromium, tmp_path, f"{(site / 'index.html').as_uri()}?q=lateness_ms")
    found = re.findall(
        r'class="md-search-result__link" href="([^"]+)"|href="([^"]+)" class="md-search-result__link"', page
    )
    names = {Path(re.split("[?#]", first or second)[0]).name for first, second in found}
    assert {"records.html", "guarantees.html"} <= names


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_on_a_narrow_screen(chromium: str, site: Path, tmp_path: Path, name: str) -> None:
    page = site / name
    narrow, frame = page.with_name("narrow.html"), page.with_name("frame.html")
    try:
        narrow.write_text(page.read_text().replace("</html>", MEASURE))
        frame.write_text(FRAME.replace("WIDTH", str(WIDE)))
        found = re.search(r'data-found="([^"]+)"', browse(chromium, tmp_path, frame.as_uri()))
    finally:
        narrow.unlink()
        frame.unlink()
    assert found is not None
    assert found[1] == str(WIDE), f"{name} is too wide: {found[1]}"


@pytest.mark.parametrize(("setting", "scheme"), [("0", "slate"), ("1", "default")])
def test_it_is_dark_where_the_system_is(chromium: str, site: Path, tmp_path: Path, setting: str, scheme: str) -> None:
    page = browse(
        chromium, tmp_path, (site / "index.html").as_uri(), f"--blink-settings=preferredColorScheme={setting}"
    )
    body = re.search(r"<body[^>]*>", page)
    assert body is not None
    assert f'data-md-color-scheme="{scheme}"' in body[0]
