"""The public names, exactly: what is exported, and that the hand-written stub says the same as the extension."""

import ast
import doctest
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import tickwheel
import tickwheel.testing
from tickwheel import _native

STUB = ast.parse(Path(tickwheel.__file__).with_name("_native.pyi").read_text(encoding="utf-8"))
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def is_for_types_only(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id in {"TypedDict", "Protocol"} for base in node.bases)


REAL = {name: node for name, node in CLASSES.items() if not is_for_types_only(node)}
VARIABLES = {
    node.target.id
    for node in STUB.body
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is None
}


FUNCTIONS = {node.name for node in STUB.body if isinstance(node, ast.FunctionDef)}


def public(names: Any) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def test_tickwheel_exports_exactly_these_names() -> None:
    names = [
        "DelayedOperation",
        "DelayedOperationPurgatory",
        "OperationCancelled",
        "PeriodicTask",
        "SystemTimer",
        "TaskBatch",
        "TickwheelError",
        "Timer",
        "TimerClosed",
        "TimerForked",
        "TimerFull",
        "TimerRejected",
        "TimerTask",
        "__version__",
        "weak_method",
    ]
    assert tickwheel.__all__ == names
    found = {name for name, value in vars(tickwheel).items() if not isinstance(value, types.ModuleType)}
    assert public(found) == public(names)


def test_tickwheel_testing_exports_exactly_these_names() -> None:
    assert tickwheel.testing.__all__ == ["Deadlock", "ManualTimer", "VirtualLoop"]
    assert all(hasattr(tickwheel.testing, name) for name in tickwheel.testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Manual'"):
        tickwheel.testing.Manual  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", sorted(set(tickwheel.__all__) - {"__version__"}))
def test_a_public_class_says_that_it_lives_in_tickwheel(name: str) -> None:
    assert (getattr(tickwheel, name).__module__, getattr(tickwheel, name).__name__) == ("tickwheel", name)


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert tickwheel.__version__ == version("tickwheel")


def test_the_errors_are_one_tree() -> None:
    assert tickwheel.TickwheelError.__bases__ == (Exception,)
    for name in ("OperationCancelled", "TimerClosed", "TimerForked", "TimerFull", "TimerRejected"):
        assert getattr(tickwheel, name).__bases__ == (tickwheel.TickwheelError, RuntimeError)


def test_the_stub_has_the_names_of_the_extension() -> None:
    assert public(vars(_native)) == public(REAL) | public(FUNCTIONS) | public(VARIABLES)
    assert "__version__" in VARIABLES


@pytest.mark.parametrize("name", REAL)
def test_a_class_of_the_stub_has_the_bases_and_public_names_of_the_extension(name: str) -> None:
    stub, real = REAL[name], getattr(_native, name)
    assert [base.id for base in stub.bases if isinstance(base, ast.Name)] == [
        base.__name__ for base in real.__bases__ if base is not object
    ]
    # What a class redefines of its base need not be said twice in the stub.
    inherited = {item for base in stub.bases if isinstance(base, ast.Name) for item in methods_of(base.id)}
    said = set(methods(stub)) | {
        item.target.id for item in stub.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    members = (target for item in stub.body if isinstance(item, ast.Assign) for target in item.targets)
    said |= {target.id for target in members if isinstance(target, ast.Name)}
    assert public(dict.fromkeys(said)) == public(vars(real)) - (inherited - said)


def methods_of(name: str) -> set[str]:
    return set(methods(REAL[name])) if name in REAL else set()


@pytest.mark.parametrize("name", REAL)
def test_a_special_method_of_the_stub_exists(name: str) -> None:
    real = getattr(_native, name)
    special = [method for method in methods(REAL[name]) if method.startswith("__")]
    assert [method for method in special if not callable(getattr(real, method, None))] == []


def names_of(function: ast.FunctionDef) -> list[tuple[str, str]]:
    arguments = function.args
    return [
        *((item.arg, "positional only") for item in arguments.posonlyargs),
        *((item.arg, "any") for item in arguments.args),
        *([(arguments.vararg.arg, "rest")] if arguments.vararg else []),
        *((item.arg, "keyword only") for item in arguments.kwonlyargs),
        *([(arguments.kwarg.arg, "rest by name")] if arguments.kwarg else []),
    ]


KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "any",
    inspect.Parameter.VAR_POSITIONAL: "rest",
    inspect.Parameter.KEYWORD_ONLY: "keyword only",
    inspect.Parameter.VAR_KEYWORD: "rest by name",
}

CHECKED = [
    (name, method)
    for name, node in REAL.items()
    for method, function in methods(node).items()
    if not method.startswith("_") and not function.decorator_list
]


@pytest.mark.parametrize(("name", "method"), CHECKED)
def test_a_method_takes_the_arguments_that_the_stub_says(name: str, method: str) -> None:
    real = getattr(getattr(_native, name), method)
    found = [(item.name, KINDS[item.kind]) for item in inspect.signature(real).parameters.values()]
    assert found[1:] == names_of(methods(REAL[name])[method])[1:]


@pytest.mark.parametrize("name", ["SystemTimer", "ManualTimer", "DelayedOperationPurgatory"])
def test_a_timer_is_made_with_the_arguments_that_the_stub_says(name: str) -> None:
    signature = inspect.signature(getattr(_native, name))
    found = [(item.name, KINDS[item.kind]) for item in signature.parameters.values()]
    assert found == names_of(methods(REAL[name])["__init__"])[1:]


FOR_USERS = [name for name in REAL if getattr(_native, name).__module__ != "tickwheel._native"]
"""The others are for this package alone, and documented in Rust."""

DOCUMENTED = [(name, method) for name, method in CHECKED if name in FOR_USERS]


@pytest.mark.parametrize(("name", "method"), DOCUMENTED)
def test_every_public_method_is_documented_in_the_stub(name: str, method: str) -> None:
    assert ast.get_docstring(methods(REAL[name])[method])


def is_of_the_package(real: type) -> bool:
    """Other tests have subclasses too."""
    is_named_so = getattr(sys.modules.get(real.__module__), real.__name__, None) is real
    return is_named_so and real.__module__.partition(".")[0] == "tickwheel"


@pytest.mark.parametrize(("name", "method"), DOCUMENTED)
def test_help_says_what_the_stub_says(name: str, method: str) -> None:
    said = ast.get_docstring(methods(REAL[name])[method])
    subclasses = [real for real in getattr(_native, name).__subclasses__() if method not in methods_of(real.__name__)]
    for real in (getattr(_native, name), *filter(is_of_the_package, subclasses)):
        assert inspect.getdoc(getattr(real, method)) == said


@pytest.mark.parametrize("name", FOR_USERS)
def test_help_of_a_class_says_what_the_stub_says(name: str) -> None:
    assert inspect.getdoc(getattr(_native, name)) == ast.get_docstring(REAL[name])


@pytest.mark.parametrize("name", [name for name, node in CLASSES.items() if ">>>" in (ast.get_docstring(node) or "")])
def test_the_examples_of_the_stub_are_true(name: str) -> None:
    text = ast.get_docstring(CLASSES[name])
    assert text is not None
    names = {key: getattr(_native, key) for key in REAL}
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert doctest.DocTestRunner().run(example) == (0, len(example.examples))
