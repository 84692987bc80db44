"""A browser, which is the Chromium of the machine, driven by Playwright; and a service to look at."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from delivery.serve.conftest import Served

Open = Callable[..., Page]
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("there is no chromium: apt-get install chromium")
    if found is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens an address in a tab of its own. What a script throws, and what the policy forbids, fails the test."""
    problems: list[str] = []
    contexts = []

    def note(message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:  # an answer of 4xx
            problems.append(message.text)

    def open_(url: str, *, width: int = 1200, height: int = 900, dark: bool = False, **more: Any) -> Page:
        contexts.append(
            browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
                reduced_motion="reduce",
                **more,
            )
        )
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", note)
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    opened = Served(tmp_path)
    yield opened
    opened.close()


def url(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}/"


def note_what_moves(page: Page, slower: int) -> Callable[[], float]:
    """How far things moved that were seen already: Chromium's layout shift. `slower`: the processor, so many times.

    On a slow one the page is painted before its scripts ran, as on a machine that is busy.
    """
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.add_init_script("""
        window.moved = 0;
        new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
        }).observe({ type: "layout-shift", buffered: true });
    """)
    return lambda: page.evaluate("window.moved")
