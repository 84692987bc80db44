"""T13, T18: Arrow arrays and streams from producers of every kind, also from those that break the interface.

What goes wrong here crashes, so each producer is read in a process of its own.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from borders.harness import run_script
from tickwheel.testing import ManualTimer

FOLDER = str(Path(__file__).parent)
SCRIPT = """
sys.path.insert(0, {folder!r})
from arrow_structs import *
producer = {producer}
timer = ManualTimer()
try:
    timer.add_many(producer, nop)
    print([(int(due_ms), index) for due_ms, (_, index) in timer.pending()])
except BaseException as error:
    assert len(timer) == 0
    print(f"{{type(error).__name__}}: {{error}}")
{after}
"""


def read(producer: str, after: str = "") -> str:
    """What a timer makes of a producer, or the error."""
    return run_script(SCRIPT.format(folder=FOLDER, producer=producer, after=after)).rstrip("\n")


OTHER = ": pass one of another library"
INVALID: list[tuple[str, str]] = [
    ("length=-1", "it ends at 0 + -1 values"),
    ("offset=-1", "it ends at -1 + 2 values"),
    ("n_buffers=-1", "it has -1 buffers where int64 has 2"),
    ("n_buffers=0", "it has 0 buffers where int64 has 2"),
    ("n_buffers=3", "it has 3 buffers where int64 has 2"),
    ("buffers=ctypes.addressof((ctypes.c_void_p * 2)())", "its values are null, and it has 2"),
    ("offset=2**63 - 1", f"it ends at {2**63 - 1} + 2 values"),
    ("length=2**62", f"it ends at 0 + {2**62} values"),
]


@pytest.mark.parametrize(("change", "why"), INVALID)
def test_an_array_that_breaks_the_interface_is_refused_and_not_read__T13(change: str, why: str) -> None:
    expected = f"ValueError: delays_ms is not a valid Arrow array, {why}{OTHER}"
    assert read(f"ArrayProducer([5, 6], {change})") == expected


@pytest.mark.parametrize(("change", "why"), INVALID)
def test_a_chunk_that_breaks_the_interface_is_refused_and_released__T13(change: str, why: str) -> None:
    expected = f"ValueError: delays_ms is not a valid Arrow array, {why}{OTHER}"
    after = "assert producer.released == producer.made == {'schema': 1, 'array': 2, 'stream': 1}, producer.released"
    assert read(f"StreamProducer([5], fields([5, 6], {change}), [7])", after) == expected


@pytest.mark.parametrize("skew", range(9))
def test_values_may_begin_at_any_address__T13(skew: int) -> None:
    assert read(f"ArrayProducer([30, 5, 400], skew={skew})") == "[(5, 1), (30, 0), (400, 2)]"
    assert read(f"StreamProducer([30], fields([5, 400], skew={skew}))") == "[(5, 1), (30, 0), (400, 2)]"


def test_a_list_of_buffers_may_begin_at_any_address__T13() -> None:
    code = """
class Skewed(ArrayProducer):
    def fill_array(self, struct, values):
        super().fill_array(struct, values)
        room = self.keep(ctypes.create_string_buffer(b"123" + ctypes.string_at(struct.buffers, 16)))
        struct.buffers = ctypes.addressof(room) + 3
producer = Skewed([30, 5])
"""
    assert read(f"None{code}") == "[(5, 1), (30, 0)]"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("valid=b'\\x05', null_count=1", "ValueError: delays_ms must have no nulls: drop or fill them first"),
        ("valid=b'\\x05', null_count=-1", "ValueError: delays_ms must have no nulls: drop or fill them first"),
        ("null_count=-1", "[(30, 0), (40, 1), (50, 2)]"),
        ("valid=b'\\x07', null_count=-1", "[(30, 0), (40, 1), (50, 2)]"),
    ],
)
def test_nulls_are_found_however_they_are_said__T18(change: str, expected: str) -> None:
    assert read(f"ArrayProducer([30, 40, 50], {change})") == expected
    assert read(f"StreamProducer(fields([30, 40, 50], {change}))") == expected


RETURN = "the Arrow method of delays_ms must return"
LIBRARY = ": pass an array of another library"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("names=(b'arrow_schema', b'other')", f"{RETURN} a capsule 'arrow_array', got PyCapsule "),
        ("names=(b'other', b'arrow_array')", f"{RETURN} a capsule 'arrow_schema', got PyCapsule "),
        ("returns=lambda *both: both[::-1]", f"{RETURN} a capsule 'arrow_schema', got PyCapsule "),
        ("returns=lambda *both: both[:1]", f"{RETURN} a tuple of two capsules, got tuple "),
        ("returns=lambda *both: list(both)", f"{RETURN} a tuple of two capsules, got list "),
        ("returns=lambda *both: None", f"{RETURN} a tuple of two capsules, got NoneType None"),
        ("returns=lambda *both: (1, 2)", f"{RETURN} a capsule 'arrow_schema', got int 1"),
    ],
)
def test_what_is_no_capsule_of_the_right_name_is_refused__T13(change: str, expected: str) -> None:
    said = read(f"ArrayProducer([5], {change})")
    assert said.startswith(f"TypeError: {expected}")
    assert said.endswith(LIBRARY)


def test_a_stream_capsule_of_another_name_is_refused__T13() -> None:
    said = read("StreamProducer([5], name=b'arrow_array')", "assert producer.released['stream'] == 0")
    assert said.startswith(f"TypeError: {RETURN} a capsule 'arrow_array_stream', got PyCapsule ")


def test_a_stream_that_was_read_is_released_for_the_next_reader__T13() -> None:
    after = """
try:
    timer.add_many(producer, nop)
except ValueError as error:
    print(error)
assert producer.released == producer.made == {'schema': 1, 'array': 3, 'stream': 1}, producer.released
"""
    said = read("StreamProducer([30], [], [5])", after).splitlines()
    assert said == ["[(5, 1), (30, 0)]", "delays_ms was released by its owner: pass a fresh Arrow array"]


FAILED = "the Arrow stream of delays_ms failed"
PASS = "; pass values that can all be read"


@pytest.mark.parametrize(
    ("producer", "expected", "arrays"),
    [
        ("[5], [6, 7], EIO", f"OSError: [Errno 5] {FAILED} after 3 values: the disk is gone{PASS}", 2),
        ("[5], EIO, claims=True", f"OSError: [Errno 5] {FAILED} after 1 values: the disk is gone{PASS}", 1),
        ("EIO, error=None", f"OSError: [Errno 5] {FAILED} after 0 values{PASS}", 0),
        ("EIO, get_last_error=None", f"OSError: [Errno 5] {FAILED} after 0 values{PASS}", 0),
        ("[5], ENOMEM", f"MemoryError: {FAILED} after 1 values: the disk is gone{PASS}", 1),
        ("[5], schema_code=EIO", f"OSError: [Errno 5] {FAILED} before its type: the disk is gone{PASS}", 0),
        (
            "[5], get_schema=None",
            f"ValueError: delays_ms is not a valid Arrow array, its stream lacks a function{OTHER}",
            0,
        ),
        (
            "[5], get_next=None",
            f"ValueError: delays_ms is not a valid Arrow array, its stream lacks a function{OTHER}",
            0,
        ),
        (
            "[5], schema={'release': None}",
            f"ValueError: delays_ms is not a valid Arrow array, its stream gives no type{OTHER}",
            0,
        ),
        (
            "[5], schema={'format': b'i'}",
            "TypeError: delays_ms must be an Arrow array of int64, got format 'i': cast it first",
            0,
        ),
        (
            "[5], schema={'format': b'+s'}",
            "TypeError: delays_ms must be an Arrow array of int64, got format '+s': pass one column of it",
            0,
        ),
    ],
)
def test_a_stream_that_fails_says_why_and_is_released_once__T13(producer: str, expected: str, arrays: int) -> None:
    after = f"""
made = dict(producer.made)
made["schema"] -= {int("'release': None" in producer)}
assert producer.released == made and made["array"] == {arrays} and made["stream"] == 1, (producer.released, made)
"""
    assert read(f"StreamProducer({producer})", after) == expected


def test_ctrl_c_ends_a_stream_without_end__rule4() -> None:
    """What is raised inside the producer's functions, which are Python here, goes nowhere: it comes again outside.

    The signals begin with the stream: before, they would strike the lines that make it on a busy machine.
    """
    code = """StreamProducer([], endless=True)

def interrupt(_, frame):
    if frame.f_code.co_name == "<module>":
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

def interrupted(chunks):
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.001)
    yield from chunks

signal.signal(signal.SIGALRM, interrupt)
producer._chunks = interrupted(producer._chunks)
"""
    after = "assert producer.released == producer.made and producer.made['stream'] == 1, producer.released"
    assert read(code, after) == "KeyboardInterrupt: "


def test_others_run_while_a_stream_is_read__rule4() -> None:
    """A producer's function may wait for a thread that needs the GIL: here for a signal that such a thread sends."""
    code = """StreamProducer([5], get_next=ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p).value)
signal.signal(signal.SIGUSR1, nop)
done, main = threading.Event(), threading.get_ident()

def wake():
    while not done.wait(0.005):
        signal.pthread_kill(main, signal.SIGUSR1)

threading.Thread(target=wake).start()
"""
    assert read(code, "done.set()") == f"OSError: [Errno -1] {FAILED} after 0 values: the disk is gone{PASS}"


@pytest.mark.parametrize("what", ["KeyboardInterrupt", "MemoryError", "ZeroDivisionError", "TypeError"])
@pytest.mark.parametrize("method", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_what_a_producer_raises_comes_through__T13(method: str, what: str) -> None:
    producer = f"""type("Raises", (), {{"{method}": lambda self: (_ for _ in ()).throw({what}("mine"))}})()"""
    assert read(producer) == f"{what}: mine"


@pytest.mark.parametrize(
    "delays_ms",
    [
        pa.chunked_array([[30], [5, 400]], "int64"),
        pa.chunked_array([[1, 30], [], [5, 400, 2]], "int64").slice(1, 3),
        pa.chunked_array([pa.array([None, 30], "int64").slice(1), pa.array([5, 400, None], "int64").slice(0, 2)]),
        pa.table({"ms": pa.chunked_array([[30, 5], [400]], "int64")})["ms"],
        pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(b"x" + pa.array([30, 5, 400]).buffers()[1][:24])[1:]]),
    ],
)
def test_chunked_and_unaligned_arrays_of_pyarrow_are_read__T13(delays_ms: Any) -> None:
    timer = ManualTimer()
    timer.add_many(delays_ms, print)
    assert [(due_ms, index) for due_ms, (_, index) in timer.pending()] == [(5, 1), (30, 0), (400, 2)]


def test_an_empty_chunked_array_is_an_empty_batch__T18() -> None:
    timer = ManualTimer()
    assert len(timer.add_many(pa.chunked_array([], "int64"), print)) == len(timer) == 0


def test_a_whole_table_is_refused_with_what_to_do__T13() -> None:
    with pytest.raises(TypeError, match=r"got format '\+s': pass one column of it$"):
        ManualTimer().add_many(pa.table({"ms": [5]}), print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^delays_ms must have no nulls"):
        ManualTimer().add_many(pa.chunked_array([[5], [None]], "int64"), print)


def test_an_array_is_preferred_where_both_are_there__T13() -> None:
    producer = "type('Both', (ArrayProducer,), {'__arrow_c_stream__': lambda self: 1 / 0})([5])"
    assert read(producer) == "[(5, 0)]"
