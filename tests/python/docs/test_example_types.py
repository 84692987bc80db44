"""The examples of the documents, as mypy and pyright see them in strict mode (T22).

Left out is what strict mode asks of the functions of the examples themselves, which have no annotations for a reader's
sake, and what has nothing to do with types: names that are shown and not used.
"""

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r'^```python(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
UNTYPED = ("no-untyped-def", "no-untyped-call", "no-redef", "var-annotated")
UNKNOWN = ("Argument", "Lambda", "Member", "Parameter", "Variable")
OFF = (
    *(f"reportUnknown{what}Type" for what in UNKNOWN),
    *("reportMissingImports", "reportMissingParameterType", "reportMissingTypeStubs", "reportUntypedFunctionDecorator"),
    *("reportDuplicateImport", "reportRedeclaration"),
    *("reportUnusedExpression", "reportUnusedImport", "reportUnusedVariable"),
)


def write_examples(folder: Path) -> list[Path]:
    """Each program of a page, and its examples for doctest as one more. They keep the numbers of their lines."""
    written = []
    for page in PAGES:
        text, here = page.read_text("utf-8"), folder / page.parent.relative_to(ROOT)
        here.mkdir(parents=True, exist_ok=True)
        told = doctest.DocTestParser().get_examples(text)
        programs = (
            {f"{page.stem}_examples.py".replace("-", "_"): [(it.lineno, it.source) for it in told]} if told else {}
        )
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            if ">>>" not in block[2]:
                programs[block[1] or f"{page.stem}_{line}.py".replace("-", "_")] = [(line, block[2])]
        for name, parts in programs.items():
            lines: list[str] = []
            for line, source in parts:
                lines += [""] * (line - len(lines)) + source.splitlines()
            (here / name).write_text("\n".join(lines) + "\n")
            written.append(here / name)
    return written


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[Path]]:
    """The programs of each folder, which may import each other."""
    written = write_examples(tmp_path_factory.mktemp("examples"))
    assert len(written) > 30
    return {folder: [path for path in written if path.parent == folder] for folder in {path.parent for path in written}}


@pytest.mark.timeout(300)
def test_mypy_finds_nothing_wrong_in_the_examples__T22(examples: dict[Path, list[Path]]) -> None:
    options = ["--strict", "--allow-redefinition", "--no-error-summary", "--hide-error-context", "--config-file"]
    options = [f"--cache-dir={ROOT / '.mypy_cache/examples'}", *options]  # of the package, for all folders
    off = [f"--disable-error-code={code}" for code in UNTYPED]
    for folder, paths in examples.items():
        command = [
            sys.executable,
            "-m",
            "mypy",
            *options,
            str(ROOT / "pyproject.toml"),
            *off,
            *(it.name for it in paths),
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.timeout(300)
def test_pyright_finds_nothing_wrong_in_the_examples__T22(examples: dict[Path, list[Path]], tmp_path: Path) -> None:
    folders = sorted(examples, key=lambda folder: -len(folder.parts))  # a file is of the first that it is in
    # Django has no types without a plugin.
    paths = [str(path) for folder in folders for path in examples[folder] if not path.stem.startswith("django")]
    settings = {"typeCheckingMode": "strict", **dict.fromkeys(OFF, "none"), "include": paths}
    settings["executionEnvironments"] = [{"root": str(folder)} for folder in folders]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [Path(sys.executable).with_name("basedpyright"), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == len(paths)
    assert [
        f"{it['file']}:{it['range']['start']['line'] + 1}: {it['message']}" for it in answer["generalDiagnostics"]
    ] == []
