"""How pages, comments and docstrings are written, and whether the tests exist that the invariants name."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("prose", ROOT / ".ci/docs/prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROSE = _load()


@pytest.mark.parametrize("folder", PROSE.LIMITS)
def test_few_sentences_of_a_folder_are_hard_to_read(folder: str) -> None:
    count, hard = PROSE.counted(folder)
    assert count > 100
    share = 100 * len(hard) / count
    assert share <= PROSE.LIMITS[folder], "shorten some of these:\n" + "\n".join(hard)


def test_a_sentence_is_hard_if_it_is_long_or_begins_with_what_or_names_a_person(tmp_path: Path) -> None:
    text = f"""
# What a heading says does not count

- The writer commits a group. What is not on disk is not seen.
- Nobody waits for the lock here.

```
What is in a block of code is no sentence
```

{"word " * 26}.
"""
    path = tmp_path / "page.md"
    path.write_text(text)
    found = [each[:4] for each in PROSE.sentences(PROSE.prose(path)) if PROSE.is_hard(each)]
    assert found == ["What", "Nobo", "word"]


def test_every_test_and_file_that_an_invariant_names_exists() -> None:
    page = (ROOT / "docs/internals/concurrency.md").read_text("utf-8")
    tests = set(re.findall(r"`([a-z]\w+__\w+)`", page))
    assert len(tests) > 10
    sources = "".join(path.read_text() for path in (ROOT / "crates/delivery/src").rglob("*.rs"))
    assert {name for name in tests if f"fn {name}(" not in sources} == set()
    files = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.(?:py|rs))`", page)}
    known = {path.name for root in ("src", "crates", "tests/python") for path in (ROOT / root).rglob("*.*")}
    assert len(files) > 30
    assert files - known == set()
