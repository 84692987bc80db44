"""The table of operations, and what is written by hand beside it: the description of the API, the stub (rule D16)."""

import ast
import pickle
from pathlib import Path

import pytest
import yaml

from tickwheel._native import OPERATIONS
from tickwheel.delivery import Answer
from tickwheel.delivery.model.operations import REPLIES, reply

ROOT = Path(__file__).parents[3]
API = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text("utf-8"))
HAS_A_REASON = {Answer.CONFLICT, Answer.FULL}  # they are told as an error, with `reason` and `allowed`


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_api_describes_each_request_of_an_operation_with_each_status(name: str) -> None:
    requests, replies = OPERATIONS[name]
    assert replies
    for request in requests:
        method, path = request.split()
        described = API["paths"][path][method.lower()]["responses"]
        assert {str(status) for status, _, _ in replies.values()} <= set(described), request


def test_the_api_has_a_word_for_each_answer_that_has_one() -> None:
    schemas = API["components"]["schemas"]
    words = {*schemas["Answer"]["enum"]}
    words.update(*(schemas[name]["properties"]["state"]["enum"] for name in ("Sending", "StateOfDestination")))
    assert words == {*Answer} - HAS_A_REASON


def test_the_stub_has_the_members_of_the_class_that_is_made_from_the_table() -> None:
    stub = ast.parse((ROOT / "python/tickwheel/_native.pyi").read_text("utf-8"))
    (written,) = (node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Answer")
    members = {
        node.targets[0].id: node.value.value
        for node in written.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    assert members == {name: str(member) for name, member in Answer.__members__.items()}
    assert [*members] == [*Answer.__members__]


def test_an_answer_is_a_word_and_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Answer.REPLACED)) is Answer.REPLACED
    assert f"{Answer.REPLACED}" == "replaced"
    assert repr(Answer.REPLACED) == "<Answer.REPLACED: 'replaced'>"


def test_what_came_too_late_has_another_status_and_exit_code_than_what_did_its_work() -> None:
    assert reply("cancel", Answer.UNKNOWN) == (202, 0, "it has not come, and is cancelled when it comes")
    assert reply("reschedule", Answer.UNKNOWN)[:2] == (404, 1)
    assert reply("reschedule", Answer.CANCELLED)[:2] == (409, 1)
    assert {code for replies in REPLIES.values() for _, code, _ in replies.values()} == {0, 1, 2}
