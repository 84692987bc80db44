"""The named destinations on the page of a service (D14, D23)."""

import socket
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from delivery.serve.conftest import Served
from delivery.serve.test_seen_destinations import put, set_destination
from tickwheel._native import Destination

from .conftest import Open, url

pytestmark = pytest.mark.timeout(90)


def test_those_that_need_the_reader_come_first_with_their_error__D14_D23(tmp_path: Path, open_page: Open) -> None:
    with closing(Served(tmp_path, to=Destination.named())) as served, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        page = open_page(url(served))
        expect(page.locator("#tile-destination")).to_contain_text("Up")
        expect(page.locator("#destinations")).to_be_hidden()
        set_destination(served, "acme", f"http://127.0.0.1:{nobody.getsockname()[1]}/", rate="10/s")
        set_destination(served, "held", "http://127.0.0.1:1/", paused=True)
        for number in range(21):
            set_destination(served, f"idle-{number}", "http://127.0.0.1:1/")
        put(served, "acme", 6)
        put(served, "held", 2)
        rows = page.locator("#destination-rows tr")
        expect(rows.nth(0)).to_contain_text("down since")
        expect(rows.nth(0).locator("th")).to_have_text("acme")
        expect(rows.nth(0)).to_contain_text("each second")
        expect(rows.nth(0)).to_contain_text("refused")
        expect(rows.nth(0)).to_contain_text("10/s")
        expect(rows.nth(1).locator("th")).to_have_text("held")
        expect(rows.nth(1).locator("td").nth(0)).to_have_text("paused")
        expect(rows.nth(1).locator("td").nth(1)).to_have_text("2")
        expect(rows).to_have_count(20)
        words = "There are 23: 1 down, 1 paused. Here are 20: first those that are down"
        expect(page.locator("#destinations-words")).to_contain_text(words)
        expect(page.locator("#tile-destination")).to_contain_text("1 downof 23 named ones")
