"""Kafka's jars, the compiled driver, and the program with tickwheel's works, all in the project's build folders."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
FOLDER: Final = ROOT / "build/bench-kafka"
PEERS: Final = ROOT / "target/peers/release/peers"
JAVA_AT_LEAST: Final = 17


class MissingError(Exception):
    """Says what is missing, and what to do."""


def driver() -> None:
    """Fetch the jars if the pom has changed since, and compile the driver. Raises MissingError."""
    if java_version() < JAVA_AT_LEAST:
        raise MissingError(f"Java {JAVA_AT_LEAST} or later with javac is needed: install a JDK, or set JAVA_HOME")
    pom, stamp = HERE / "pom.xml", FOLDER / "pom.xml"
    if not stamp.exists() or stamp.read_bytes() != pom.read_bytes():
        shutil.rmtree(FOLDER, ignore_errors=True)
        maven = shutil.which("mvn")
        if maven is None:
            raise MissingError("Maven, which fetches Kafka's jars, is missing: install maven, or put mvn on PATH")
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={FOLDER / 'jars'}"]
        run([maven, "-q", "-B", "-f", str(pom), *copy], "Maven can't fetch Kafka's jars")
        shutil.copy(pom, stamp)
    compiler = [tool("javac"), "-Xlint:all", "-Werror", "-d", str(FOLDER / "classes")]
    run([*compiler, "-cp", str(FOLDER / "jars/*"), str(HERE / "KafkaTimer.java")], "the driver can't be compiled")


def peers() -> None:
    """Build the Rust peers, as `make bench` does. Raises MissingError."""
    if shutil.which("cargo") is None:
        raise MissingError("cargo, which builds tickwheel's side, is missing: install Rust, or put cargo on PATH")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", "benches/peers/Cargo.toml"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"CARGO_TARGET_DIR": str(PEERS.parents[1])}, check=True)


def class_path() -> str:
    """The driver and the jars."""
    return f"{FOLDER / 'classes'}{os.pathsep}{FOLDER / 'jars'}/*"


def versions() -> dict[str, str]:
    """Of what is measured and is no Python package."""
    (jar,) = FOLDER.glob("jars/kafka-server-common-*.jar")
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    return {
        "kafka-server-common": jar.stem.removeprefix("kafka-server-common-"),
        "java": java_says(),
        "rustc": compiler,
    }


def java_version() -> int:
    """The first number of the version; 0 without a Java and its compiler."""
    return int(java_says().partition(".")[0] or 0) if shutil.which(tool("javac")) else 0


def java_says() -> str:
    """The version of Java, such as 17.0.15; empty without it."""
    if not shutil.which(tool("java")):
        return ""
    said = subprocess.run([tool("java"), "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([\d.]+)', said)
    return found[1] if found else ""


def tool(name: str) -> str:
    """A program of the JDK."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{name}" if home else name


def run(command: list[str], problem: str) -> None:
    """Run to the end. Raises MissingError with the problem, and what was printed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"{problem}: {done.stdout}{done.stderr}")
