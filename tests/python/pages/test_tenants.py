"""The busiest tenants on the page of a service (D14, D24)."""

from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from delivery.serve.conftest import Served

from .conftest import Open, url

pytestmark = pytest.mark.timeout(90)


def test_the_busiest_tenants_are_told_with_what_arrived_and_how_late__D14_D24(tmp_path: Path, open_page: Open) -> None:
    with closing(Served(tmp_path)) as served:
        page = open_page(url(served))
        expect(page.locator("#status")).to_contain_text("Ready.")
        expect(page.locator("#tenants")).to_be_hidden()
        assert served.ask("PUT", "/tenants/held", {"paused": True}).status == 201
        for number in range(5):
            tenant = "well" if number < 3 else "held"
            record = {"id": f"{number}", "delay_ms": 0, "tenant": tenant}
            assert served.ask("POST", "/messages", record).status == 201
        rows = page.locator("#tenant-rows tr")
        expect(rows).to_have_count(2)
        expect(rows.nth(0).locator("th, td")).to_have_text(["held", "paused", "2", "2", "0", "0", "", "", "0"])
        well = rows.nth(1).locator("th, td")
        expect(well.nth(6)).to_have_text("0 of 3")
        expect(well.nth(0)).to_have_text("well")
        expect(well.nth(5)).to_have_text("0")  # none since the figures before
        expect(well.nth(7)).to_contain_text("ms")
