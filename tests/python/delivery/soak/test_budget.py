"""D8: payloads of 1 MiB that come faster than they go out stay within 150 MiB, and the memory goes back afterwards."""

from collections.abc import Callable

import pytest

from delivery.soak.budget import MIB, by_http, by_put

pytestmark = pytest.mark.timeout(1200)

Size = Callable[[int, int], int]


@pytest.mark.parametrize("kind", ["put", "put-bytes"])
def test_large_payloads_by_put_stay_within_the_budget__D8(kind: str, size: Size) -> None:
    check(kind, by_put(kind, size(150, 600), size(2, 60)))


@pytest.mark.parametrize("clients", [4, 16])
def test_large_bodies_over_http_stay_within_the_budget__D8(clients: int, size: Size) -> None:
    check(f"{clients} clients", by_http(clients, size(150, 900), size(2, 60)))


def check(load: str, found: dict[str, int]) -> None:
    print(f"{load}: { ({name: value // MIB if value >= MIB else value for name, value in found.items()}) }")
    assert found["peak"] < 150 * MIB
    assert found["after"] < 40 * MIB
