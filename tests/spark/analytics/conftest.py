"""One analysis of two stores for all tests that check its result."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from analysis import slow
from analysis.stores import NOW_MS, fill
from tickwheel.spark.analytics import analyze


@dataclass
class Analysis:
    """The analyzed stores, and the folder of the result."""

    stores: list[Path]
    out: Path
    rows: list[dict[str, Any]]
    said: list[str]

    def figure(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(self.out / f"{name}.parquet").to_pylist()
        return found

    @property
    def page(self) -> str:
        return (self.out / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def analysis(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("analysis")
    stores = [folder / "a <b>&.db", folder / "b ?#%20.db"]
    fill(stores[0], seed=1, messages=4_000)
    fill(stores[1], seed=2, messages=2_500)
    said: list[str] = []
    out = folder / "out [1] {x} %20 é"
    analyze(session, stores, out, say=said.append, slice_rows=900, wall_ns=lambda: NOW_MS * 1_000_000)
    return Analysis(stores, out, slow.read(stores), said)


@pytest.fixture(scope="session")
def empty(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("empty")
    fill_nothing(folder / "s.db")
    analyze(session, [folder / "s.db"], folder / "out")
    return Analysis([folder / "s.db"], folder / "out", [], [])


def fill_nothing(path: Path) -> None:
    from delivery.made_store import MadeStore

    MadeStore(path)
