"""Runs the examples in the documents as tests."""

import doctest
import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from django_site.setting_up import set_up

ROOT = Path(__file__).parents[2]
TEXTS = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
MODULES = sorted((ROOT / "python/tickwheel").rglob("*.py"))
if find_spec("pyspark") is None:
    MODULES = [path for path in MODULES if path.parent.name != "spark"]
RULES = [*(f"T{number}" for number in range(1, 20)), *(f"P{number}" for number in range(1, 9))]
RULES += [f"D{number}" for number in range(1, 14)]


def names():
    return vars(importlib.import_module("tickwheel")) | vars(importlib.import_module("tickwheel.testing"))


@pytest.mark.parametrize("name", TEXTS)
def test_the_examples_of_a_document_hold(name):
    failed, tried = doctest.testfile(str(ROOT / name), module_relative=False, globs=names())
    assert failed == 0
    if name == "README.md":
        assert tried > 3


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_examples_of_a_module_hold(path):
    if "django" in path.parts:
        set_up()  # its models are those of a site
    module = ".".join(path.relative_to(ROOT / "python").with_suffix("").parts).removesuffix(".__init__")
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_every_link_of_a_document_leads_somewhere():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in document.read_text().split("](")[1:]:
            path = target.split(")")[0].split("#")[0]
            if path and "://" not in path:
                assert (document.parent / path).exists(), f"{document.name} links to {path}"


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "RELEASING.md"])
def test_every_path_that_a_contributor_is_told_leads_somewhere(document):
    told = re.findall(r"`([\w./*-]+/[\w./*-]*|[\w-]+\.(?:toml|txt|md))`", (ROOT / document).read_text())
    made = ("build/",)  # by the commands that name it
    assert len(told) > 3
    assert [path for path in told if not path.startswith(made) and not list(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize(
    ("document", "heading", "least"), [("internals/rules", "Delivery", 15), ("internals/spark", "What is tested", 5)]
)
def test_the_tests_that_show_what_delivery_promises_are_there(document, heading, least):
    table = (ROOT / f"docs/{document}.md").read_text().split(f"## {heading}")[1].split("##")[0]
    rows = [row for row in table.splitlines() if row.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[-2])]
    folder = ROOT / "tests/python/delivery"
    assert len(named) > least
    assert [name for name in named if not ((ROOT / name).exists() or (folder / name).exists())] == []


def test_every_rule_has_a_test_named_after_it():
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    sources += [path.read_text() for path in (*(ROOT / "tests/rust").rglob("*.rs"), *(ROOT / "src").rglob("*.rs"))]
    tags = {tag.upper() for source in sources for tag in re.findall(r"(?<=_)_?([tTpPdD]\d+)(?=\W|_)", source)}
    assert [rule for rule in RULES if rule not in tags] == []
