"""The documents as a site: it builds without a warning, links lead somewhere, nothing is loaded from elsewhere."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.conftest import ROOT, run

pytestmark = pytest.mark.timeout(400)  # the site is built first
TOOLS = ROOT / ".ci/docs"


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    run([sys.executable, TOOLS / "check_site.py", site, "--without-rust"])


def test_the_check_finds_what_is_wrong(site: Path, tmp_path: Path) -> None:
    wrong = {
        '<script src="https://example.org/a.js"></script>': "page.html loads https://example.org/a.js",
        '<img src="//example.org/a.png">': "page.html loads //example.org/a.png",
        '<link rel="stylesheet" href="a.css">': "page.html needs a.css: there is no such file",
        '<a href="none.html">': "page.html links to none.html: there is no such file",
        '<a href="#none">': "page.html links to #none: the page has no such place",
        '<a href="../../etc">': "page.html links to ../../etc: that is outside of the site",
    }
    (tmp_path / "page.html").write_text("".join(wrong))
    (tmp_path / "b.css").write_text('@import "https://example.org/b.css";')
    command = [sys.executable, TOOLS / "check_site.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == sorted(
        ['b.css loads from elsewhere: @import "https://', *wrong.values()],
    )


def test_the_search_needs_no_server(site: Path) -> None:
    """Its index is a script, and the worker that reads it has a stand-in where a page is a file."""
    assert "lateness" in (site / "search/search_index.js").read_text()
    assert 'src="assets/iframe-worker.js"' in (site / "index.html").read_text()


def modules_of_the_reference() -> list[tuple[str, str]]:
    """Each with the page that shows it."""
    pages = sorted((ROOT / "docs/reference").glob("*.md"))
    named = [(page.stem, name) for page in pages for name in re.findall(r"(?m)^::: (\S+)$", page.read_text())]
    paths = {name: ROOT / "python" / name.replace(".", "/") for _, name in named}
    return [(page, name) for page, name in named if paths[name].is_dir() or paths[name].with_suffix(".py").is_file()]


@pytest.mark.parametrize(("page", "module"), modules_of_the_reference())
def test_the_reference_has_every_public_name_of_a_module(page: str, module: str, site: Path) -> None:
    if module == "tickwheel.spark":
        pytest.importorskip("pyspark")
    without_a_list = {
        "tickwheel.pytest_fixtures": ["manual_timer", "virtual_runner"],
        "tickwheel.recording": ["Recording", "about", "read_recording", "replay"],
    }
    public = without_a_list.get(module) or importlib.import_module(module).__all__
    shown = (site / f"reference/{page}.html").read_text()
    told = set(re.findall(rf'id="{module}\.(?:hold\.)?(\w+)"', shown))  # tickwheel.spark.hold.hold
    assert {name for name in public if name != "__version__"} <= told


def test_every_module_with_public_names_is_in_the_reference() -> None:
    named = {module for _, module in modules_of_the_reference()}
    assert named >= {"tickwheel", "tickwheel.aio", "tickwheel.delivery", "tickwheel.delivery.sinks", "tickwheel.spark"}
    assert len(named) == 10


@pytest.mark.parametrize("tool", ["commands.py", "requests.py"])
def test_the_pages_that_are_made_are_as_their_sources(tool: str) -> None:
    run([sys.executable, TOOLS / tool, "--check"])


def test_a_session_of_python_is_copied_without_prompts_and_output(site: Path) -> None:
    """The theme marks what it copies with an attribute, and copies what is visible then."""
    assert '<span class="gp">&gt;&gt;&gt; </span>' in (site / "index.html").read_text()
    assert '<span class="gp">&gt;&gt;&gt; </span>' in (site / "reference/timers.html").read_text()
    assert "[data-md-copying] :is(.gp, .go) { display: none; }" in (site / "assets/site.css").read_text()
    assert any("data-md-copying" in path.read_text() for path in (site / "assets/javascripts").glob("bundle.*.js"))
