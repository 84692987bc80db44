"""Counts sentences that are hard to read, in pages, comments and docstrings.

    python .ci/docs/prose.py [FOLDER...]    shows them; by default those of all folders, with their limits

A sentence counts if it is long, begins with "What" or "Of", or names a person where a thread or a caller is meant.
Some of these sentences are good. So each folder has a limit, in percent of its sentences. Lower it when you can.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 25  # words
BEGINNING = re.compile(r"(What|Of)\b")
PERSON = re.compile(r"\b(who|whoever|whom|nobody|somebody|someone|everybody|he|him|his|she|her)\b", re.IGNORECASE)
LIMITS = {"docs": 8, "src": 4, "crates/delivery/src": 2, "crates/python/src": 5, "python/tickwheel": 5}


def prose(path: Path) -> str:
    """The text of a file without code: paragraphs, items of lists and cells of tables, between blank lines."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = (ast.get_docstring(each) for each in ast.walk(ast.parse(text)) if isinstance(each, nodes))
        text = re.sub(r"(?m)^\s*>>>.*$", "", "\n\n".join(filter(None, found)))
    if path.suffix == ".rs":
        lines = (re.match(r"\s*//[/!]?(.*)", line) for line in text.split("\n"))
        text = "\n".join(found[1].strip() if found else "" for found in lines)
    text = re.sub(r"(?ms)^\s*```.*?^\s*```$|<!--.*?-->", "\n", text)
    text = re.sub(r"(?m)^ *(#.*|[-*] |\d+\. )", "\n", text).replace("|", "\n\n")
    return re.sub(r"`+[^`]*`+", "CODE", re.sub(r"\]\([^)]*\)", "]", text))


def sentences(text: str) -> Iterator[str]:
    """Each with five words or more."""
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.?!])\W*\s(?=[\W_]*[A-Z])", " ".join(paragraph.split())):
            if len(_words(sentence)) >= 5:
                yield sentence


def is_hard(sentence: str) -> bool:
    """Whether it counts."""
    is_marked = BEGINNING.match(sentence) or PERSON.search(sentence)
    return bool(is_marked) or len(_words(sentence)) > LONGEST


def _words(sentence: str) -> list[str]:
    return re.findall(r"[A-Za-z][\w'-]*", sentence)


def counted(folder: str) -> tuple[int, list[str]]:
    """How many sentences a folder has, and its hard ones, each behind its file."""
    files = (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".md", ".rs", ".py"))
    found = [(path.relative_to(ROOT), each) for path in files for each in sentences(prose(path))]
    return len(found), [f"{path}: {each}" for path, each in found if is_hard(each)]


if __name__ == "__main__":
    for folder in sys.argv[1:] or LIMITS:
        count, hard = counted(folder)
        total = f"{folder}: {len(hard)} of {count} sentences, {100 * len(hard) / max(count, 1):.1f} %"
        sys.stdout.write("\n".join([*hard, total, ""]))
