"""Kafka's own timer in the comparison: each work runs and checks itself; what is missing is said, and no failure."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def build(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr(sys, "argv", ["benches.kafka"])
    return importlib.import_module("benches.kafka.build")


@pytest.fixture
def driver(build):
    try:
        build.driver()
    except build.MissingError as missing:
        if os.environ.get("CI") == "true" and build.java_version():
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    return importlib.import_module("benches.kafka.measure")


def test_every_work_of_kafkas_timer_gives_a_figure(driver, monkeypatch, capsys):
    monkeypatch.setattr(driver, "JVM", ())  # its memory is for a million timers
    works = importlib.import_module("benches.kafka.works")
    for work in works.WORKS:
        for side in work.sides[1:]:
            driver.main(work.name, side, 3000, warm_up_rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == sum(len(work.sides) - 1 for work in works.WORKS)
    assert all('"figures": {' in line and '"note": "' in line for line in lines)


def test_a_work_that_kafkas_timer_cannot_do_is_an_error(driver, build):
    command = [build.tool("java"), "-cp", build.class_path(), driver.DRIVER, "fire", "timer", "10", "0"]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_help_needs_no_java(build, monkeypatch, capsys):
    monkeypatch.setattr(build, "driver", lambda: pytest.fail("nothing is built for help"))
    monkeypatch.setattr(sys, "argv", ["benches.kafka", "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        importlib.import_module("benches.kafka.__main__").main()
    assert "fire all, claimed; " in " ".join(capsys.readouterr().out.split())


def test_without_cargo_it_says_so_and_goes_on(build, monkeypatch, capsys):
    monkeypatch.setattr(build, "driver", lambda: None)
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    assert importlib.import_module("benches.kafka.__main__").main() == 0
    assert "Kafka's timer is not measured: cargo, which builds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ({"java", "javac", "mvn"}, "Java 17 or later with javac is needed: install a JDK, or set JAVA_HOME"),
        ({"javac"}, "Java 17 or later with javac is needed"),
        ({"mvn"}, "Maven, which fetches Kafka's jars, is missing: install maven, or put mvn on PATH"),
    ],
    ids=["nothing", "no compiler", "no Maven"],
)
def test_without_java_or_maven_it_says_so_and_goes_on(build, tmp_path, monkeypatch, capsys, absent, said):
    found = {name: str(tmp_path / name) for name in {"java", "javac", "mvn"} - absent}
    monkeypatch.setattr(build, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(build.shutil, "which", found.get)
    monkeypatch.setattr(build, "java_says", lambda: "17.0.15" if "java" in found else "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert importlib.import_module("benches.kafka.__main__").main() == 0
    assert f"Kafka's timer is not measured: {said}" in capsys.readouterr().err


def test_jars_that_cannot_be_fetched_are_told_and_tried_again_next_time(build, tmp_path, monkeypatch, capsys):
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho no network today\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setattr(build, "FOLDER", tmp_path / "build")
    monkeypatch.setattr(build, "java_version", lambda: 17)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for _ in range(2):
        assert importlib.import_module("benches.kafka.__main__").main() == 0
        assert "Maven can't fetch Kafka's jars: no network today" in capsys.readouterr().err
