"""Imports go one way: no circle, no floor of the bindings imports one above, no room of delivery a later one.

`docs/internals/design.md` has the tables of the floors and the rooms. Tests and models are left out. A name that a
`mod.rs` or an `__init__.py` re-exports counts as an import of the module that defines it.
"""

import ast
import itertools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python/tickwheel"
TIMER, DELIVERY, BINDINGS = ROOT / "src", ROOT / "crates/delivery/src", ROOT / "crates/python/src"
COMMENT_OR_STRING = re.compile(r"""//[^\n]*|'"'|b?"(?:\\.|[^"\\])*\"""", re.DOTALL)
VISIBILITY = re.compile(r"\bpub\(in [\w:]+\)")  # names a module, and imports nothing
USE = re.compile(r"(pub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")
MOD = re.compile(r"(#\[cfg\([^\n]*\)\]\s*)?(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([;{])")
FLOOR = re.compile(r"^\| (\d+) \| `([\w/]+)/` \| (.*) \|$", re.MULTILINE)
ROOM = re.compile(r"^\| `(\w+)/`")


def circles(edges):
    """The groups of modules that import each other in a circle: strongly connected components, by Tarjan."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(part := stack[at:]) > 1:
                found.append(", ".join(sorted(part)))
            del stack[at:]

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


class Rust:
    """The modules of a crate, and which module imports which."""

    def __init__(self, src):
        self.texts, self.uses, self.left_out, self.file = {}, {}, set(), {}
        for path in sorted(src.rglob("*.rs")):
            parts = path.relative_to(src).with_suffix("").parts
            module = tuple(part for part in parts if part not in ("mod", "lib"))
            text = COMMENT_OR_STRING.sub("", path.read_text())
            self._add(module, VISIBILITY.sub("pub", text), module)
        self.names = {name for name in self.texts if not any(name[:n] in self.left_out for n in range(len(name) + 1))}
        self.edges = {self.file[name]: set() for name in self.names if name}
        for name in filter(None, self.names):
            self.edges[self.file[name]] |= {self.file[home] for home in self._imports(name)} - {self.file[name], ()}

    def _add(self, module, text, file):
        """Removes the inline modules from the text; they belong to the same file."""
        self.file[module] = file
        rest, end = "", 0
        for found in MOD.finditer(text):
            cfg, name, how = found.groups()
            if found.start() < end:
                continue
            if cfg and ("test" in cfg or ("tickwheel_model" in cfg and "not(" not in cfg)):
                self.left_out.add((*module, name))
            rest += text[end : found.start()]
            end = found.end()
            if how == "{":
                depth = 1
                while depth:
                    depth += {"{": 1, "}": -1}.get(text[end], 0)
                    end += 1
                self._add((*module, name), text[found.end() : end - 1], file)
        text = rest + text[end:]
        self.uses[module] = [
            (bool(use[1]), path)
            for use in USE.finditer(text)
            for path in expanded("".join(re.sub(r"\s+as\s+", "@", use[2]).split()))
        ]
        self.texts[module] = USE.sub("", text)

    def _absolute(self, module, path):
        """The path from the root of the crate; `None` for a path in another crate."""
        first, *rest = path.split("::")
        base = module
        if first == "super":
            base = module[:-1]
            while rest and rest[0] == "super":
                base, rest = base[:-1], rest[1:]
        elif first == "crate":
            base = ()
        elif first != "self":
            if (*module, first) not in self.texts:
                return None
            rest = [first, *rest]
        return (*base, *rest)

    def _home(self, path, seen=()):
        """The module that defines the item of this path."""
        size = max(n for n in range(len(path) + 1) if path[:n] in self.texts)
        module, rest = path[:size], path[size:]
        for _, used in self.uses[module] if rest else ():
            target, _, alias = used.partition("@")
            absolute = self._absolute(module, target)
            if absolute and rest[0] == (alias or absolute[-1]) and (module, rest[0]) not in seen:
                return self._home((*absolute, *rest[1:]), (*seen, (module, rest[0])))
        return module

    def _imports(self, module):
        text, found = self.texts[module], set()
        for is_reexported, used in self.uses[module]:
            target, _, alias = used.partition("@")
            name = alias or target.split("::")[-1]
            if name == "*" or not is_reexported or re.search(rf"\b{name}\b", text):
                found.add(target)
        children = "|".join(name[-1] for name in self.names if name and name[:-1] == module)
        found.update(re.findall(r"\b(?:crate|super|self)(?:::\w+)+", text))
        found.update(re.findall(rf"(?<![\w:])(?:{children})(?:::\w+)+", text) if children else ())
        homes = {self._home(path) for one in found if (path := self._absolute(module, one))}
        return {home for home in homes if home in self.names}


def expanded(tree):
    """The single paths of a `use`, each with its alias after an `@`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield tree.removesuffix("::self")
        return
    depth, start = 0, 0
    inner = rest[: rest.rindex("}")]
    for at, char in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            if inner[start:at]:
                yield from expanded(head + inner[start:at])
            start = at + 1


class Python:
    """The modules of a package, and which module imports which."""

    def __init__(self, package):
        self.trees = {}
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            self.trees[name] = ast.parse(path.read_text())
        self.packages = {name for name in self.trees if any(other.startswith(f"{name}.") for other in self.trees)}
        self.edges = {name: self._imports(name) - {name} for name in self.trees}

    def _names(self, module):
        """The names that a module imports, and the path of each."""
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = module.split(".") if module in self.packages else module.split(".")[:-1]
                base = base[: len(base) + 1 - node.level] if node.level else []
                source = ".".join([*base, *filter(None, [node.module])])
                yield from ((alias.asname or alias.name, f"{source}.{alias.name}") for alias in node.names)

    def _home(self, path, seen=()):
        if path in self.trees:
            return path
        module, _, name = path.rpartition(".")
        if module not in self.trees:
            return module and self._home(module, seen)
        reexported = dict(self._names(module)) if module in self.packages else {}
        if name in reexported and path not in seen:
            return self._home(reexported[name], (*seen, path))
        return module

    def _imports(self, module):
        """An `__init__.py` that only re-exports names imports nothing."""
        names = dict(self._names(module))
        used = {node.id for node in ast.walk(self.trees[module]) if isinstance(node, ast.Name)}
        homes = {self._home(path) for name, path in names.items() if module not in self.packages or name in used}
        return {home for home in homes if home in self.trees}


@pytest.mark.parametrize(
    ("src", "known"),
    [
        (TIMER, (("system",), ("timer",))),
        (DELIVERY, (("run", "engine"), ("store",))),
        (BINDINGS, (("driving", "timer"), ("driving", "timer_object"))),
    ],
    ids=["timer", "delivery", "bindings"],
)
def test_no_circle_of_imports_among_the_modules_of_a_crate(src, known):
    edges = Rust(src).edges
    assert len(edges) > 25
    importing, imported = known
    assert imported in edges[importing]
    path = "::".join
    assert circles({path(name): {path(other) for other in others} for name, others in edges.items()}) == []


def test_no_circle_of_imports_among_the_modules_of_the_package():
    edges = Python(PACKAGE).edges
    assert len(edges) > 50
    assert circles(edges) == []


def table_of_floors():
    """Each file of the bindings and its floor, as the table has them."""
    rows = FLOOR.findall((ROOT / "docs/internals/design.md").read_text())
    return [
        ((*folder.split("/"), name), int(floor))
        for floor, folder, text in rows
        for name in re.findall(r"`(\w+)`", text)
    ]


def test_the_table_of_floors_has_each_file_of_the_bindings_once():
    files = [path.relative_to(BINDINGS).with_suffix("").parts for path in BINDINGS.rglob("*.rs")]
    files = [file for file in files if file[-1] not in ("mod", "lib")]
    assert sorted(files) == sorted(file for file, _ in table_of_floors())


def test_no_floor_of_the_bindings_imports_one_above():
    floors = dict(table_of_floors())
    floors |= {file[:-1]: floor for file, floor in floors.items()}  # the `mod.rs` of a folder
    edges = Rust(BINDINGS).edges
    upwards = [
        f"{'/'.join(name)} imports {'/'.join(other)}"
        for name, others in edges.items()
        for other in sorted(others)
        if floors[other] > floors[name]
    ]
    assert upwards == []


def table_of_rooms(kind):
    """The rooms in their order: each may use itself and those before it."""
    lines = (ROOT / "docs/internals/design.md").read_text().split(f"| room of {kind} |")[1].splitlines()[2:]
    return [
        found[1]
        for line in itertools.takewhile(lambda line: line.startswith("|"), lines)
        if (found := ROOM.match(line))
    ]


def room_imports(edges, room_of, rooms):
    """Which imports go to a later room, and how many go from one room to another."""
    between, against = set(), []
    for name, others in edges.items():
        here = room_of(name)
        for other in sorted(others):
            there = room_of(other)
            if here in rooms and there in rooms and here != there:
                between.add((here, there))
                if rooms.index(there) > rooms.index(here):
                    against.append(f"{name} imports {other}")
    return between, against


def test_no_room_of_delivery_imports_a_later_one():
    rooms = table_of_rooms("delivery")
    edges = Rust(DELIVERY).edges
    assert rooms == sorted({name[0] for name in edges if name != ("internal",)}, key=rooms.index)
    between, against = room_imports(edges, lambda name: name[0], rooms)
    assert ("api", "run") in between
    assert against == []


def test_no_room_of_the_store_imports_a_later_one():
    """Beside the rooms are the files of `Store` itself, which the rooms extend, and `replica`, which copies it."""
    rooms = table_of_rooms("the store")
    edges = {name: others for name, others in Rust(DELIVERY).edges.items() if name[0] == "store"}
    folders = sorted(
        path.name for path in (DELIVERY / "store").iterdir() if path.is_dir() and path.name not in {"tests", "replica"}
    )
    assert sorted(rooms) == folders
    between, against = room_imports(edges, lambda name: name[1] if name[0] == "store" and len(name) > 1 else "", rooms)
    assert ("maintenance", "look") in between
    assert against == []


def test_no_room_of_the_package_imports_a_later_one():
    rooms = table_of_rooms("the package")
    inside = {name: others for name, others in Python(PACKAGE).edges.items() if name.startswith("tickwheel.delivery.")}
    assert sorted(rooms) == sorted({name.split(".")[2] for name in inside})
    between, against = room_imports(inside, lambda name: (*name.split("."), "", "")[2], rooms)
    assert ("serve", "engine") in between
    assert against == []


def test_delivery_uses_public_names_of_the_timer_alone():
    texts = {path: path.read_text() for path in [*DELIVERY.rglob("*.rs"), *(DELIVERY.parent / "examples").glob("*.rs")]}
    assert any("use tickwheel::" in text for text in texts.values())
    inside = re.compile(r"\btickwheel::(?:internal\b|\{[^}]*\binternal\b)")
    assert [path for path, text in texts.items() if inside.search(text)] == []
    (listed,) = re.findall(r'let known = "(bulk [^"]*)";', (ROOT / "tests/rust/layout.rs").read_text())
    own = {"internal", "state", "wait_for_work"}  # delivery has those names too
    hidden = set(listed.replace("\\", "").split()) - own
    assert "wake_driver_if" in hidden, "the last one of the list"
    called = re.compile(rf"\.(?:{'|'.join(hidden)})\b")
    assert [(path, found[0]) for path, text in texts.items() if (found := called.search(text))] == []


def test_a_version_stands_once_in_the_root():
    for manifest in (ROOT / "crates").glob("*/Cargo.toml"):
        dependencies = tomllib.loads(manifest.read_text())
        for section in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name, given in dependencies.get(section, {}).items():
                assert given.get("workspace") is True, f"{manifest}: {name}"
                assert "version" not in given, f"{manifest}: {name}"


def test_the_bindings_know_every_event_of_delivery() -> None:
    """The enum may grow, so that the compiler does not tell."""
    events = (DELIVERY / "due/dispatcher/event.rs").read_text().split("pub enum Event {")[1].split("\n}")[0]
    names = re.findall(r"^    (\w+)(?: \{|,)$", events, re.MULTILINE)
    assert len(names) == 17
    told = set(re.findall(r"Event::(\w+)", (BINDINGS / "delivery/engine/observer.rs").read_text()))
    assert told == set(names)


def test_nothing_that_a_build_makes_is_in_the_repository():
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no git repository")
    assert done.stdout == ""
