import doctest
import importlib
import pkgutil

import pytest

from tickwheel import delivery

MODULES = [module.name for module in pkgutil.walk_packages(delivery.__path__, "tickwheel.delivery.")]


def test_the_public_names_are_these_and_all_are_there() -> None:
    assert sorted(delivery.__all__) == delivery.__all__
    assert all(hasattr(delivery, name) for name in delivery.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_in_docstrings() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [name for name in MODULES if any(case.examples for case in finder.find(importlib.import_module(name)))]
    assert {"tickwheel.delivery.queue.queue", "tickwheel.delivery.model.message"} <= set(found)
