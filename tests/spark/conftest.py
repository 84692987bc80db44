"""Spark needs Java 17 and its packages: without them these tests are skipped, and say so; in CI that is an error."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def _missing() -> str | None:
    if find_spec("pyspark") is None:
        return "pyspark is not installed: run make .venv/spark, with Java 17 installed"
    from tickwheel.delivery import WrongUsage
    from tickwheel.spark.session import need_java

    try:
        need_java()
    except WrongUsage as error:
        return str(error)
    return None


MISSING = _missing()
if MISSING and os.environ.get("CI") == "true":
    raise RuntimeError(f"in CI the Spark tests must run: {MISSING}")
if MISSING:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str | None:
    return f"Spark tests are skipped: {MISSING}" if MISSING else None


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """One JVM for all tests that need one; its workers can import the tests' modules."""
    from tickwheel.spark import laptop_session

    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    made = laptop_session("tests")
    yield made
    made.stop()
