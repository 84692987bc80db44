"""The report of the benchmarks: it fills in its parts of the page, changes nothing else, and marks missed targets."""

import doctest
import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = """# By hand

<!-- generated: rust -->
old figures of Rust
<!-- end -->

Between, by hand.

<!-- generated: python -->
old figures of Python
<!-- end -->

The end, by hand.
"""


def record(work, side, values, unit="ns", better="lower", note=""):
    return {
        "work": work, "side": side, "unit": unit, "better": better, "count": 1000, "values": values, "note": note
    }  # fmt: skip


CONDITIONS = {
    "huge_pages": "never",
    "governor": "powersave",
    "others_percent": 12.3,
    "stolen_percent": 0.5,
    "calibration_ms": [4, 5, 5, 6],
}


class Desk:
    """A folder of results, a folder of documents, and the report made from them."""

    def __init__(self, folder, main):
        self.results, self.docs, self._main = folder / "results", folder / "docs", main
        self.results.mkdir()
        self.docs.mkdir()
        self.page = self.docs / "benchmarks.md"
        self.page.write_text(PAGE)

    def measured(self, *records, suite="python", name=None, repeats=3):
        file = {"suite": suite, "command": "made up", "versions": {"rustc": "1.0"}, "conditions": CONDITIONS}
        file |= {"repeats": repeats, "records": records}
        (self.results / f"{name or suite}.json").write_text(json.dumps(file))

    def report(self):
        return self._main(["--results", str(self.results), "--docs", str(self.docs)])

    def row(self, *begin):
        """The first table row that begins with these cells, as cells."""
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in self.page.read_text().splitlines()]
        return next(row for row in rows if row[: len(begin)] == [*begin])


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return Desk(tmp_path, importlib.import_module("benches.report.__main__").main)


def test_a_target_may_be_for_a_variant_of_ours(desk):
    work = "rolling time-outs"
    desk.measured(
        *(
            record(work, side, 3 * [ns])
            for side, ns in [("tickwheel", 30), ("tickwheel, Wheel", 15), ("nexus-timer", 20)]
        ),
        suite="rust",
    )
    assert desk.report() == 0
    assert desk.row(f"{work}, Wheel") == [f"{work}, Wheel", "nexus-timer", "≤ 1", "0.750", "met"]


def test_a_part_is_replaced_in_place_and_the_rest_stays(desk):
    desk.measured(record("add", "tickwheel", [9, 11, 10]), record("add", "asyncio", [150, 150, 150]))
    desk.measured(record("insert", "tickwheel", [10]), record("insert", "DelayQueue", [50]), suite="rust")
    assert desk.report() == 0
    first = desk.page.read_text()
    assert "old figures" not in first
    assert first.startswith("# By hand\n\n<!-- generated: rust -->\n\n")
    assert "\n<!-- end -->\n\nBetween, by hand.\n\n<!-- generated: python -->\n" in first
    assert first.endswith("\n<!-- end -->\n\nThe end, by hand.\n")
    assert desk.row("add (ns)") == ["add (ns)", "**10**", "150", ""]
    assert desk.row("add", "tickwheel") == ["add", "tickwheel", "1,000", "9", "10", "11", "20 %", "ns"]
    pictures = {path.name: path.read_bytes() for path in desk.docs.glob("*.svg")}
    assert sorted(pictures) == ["benchmarks-python.svg", "benchmarks-rust.svg"]
    assert all(f"]({name})" in first for name in pictures)

    assert desk.report() == 0
    assert desk.page.read_text() == first
    assert {path.name: path.read_bytes() for path in desk.docs.glob("*.svg")} == pictures


def test_a_suite_without_results_keeps_its_part(desk, capsys):
    desk.measured(record("add", "tickwheel", [10]))
    assert desk.report() == 0
    assert "old figures of Rust" in desk.page.read_text()
    assert "rust: no result file" in capsys.readouterr().err


def test_the_part_says_how_the_machine_was(desk):
    desk.measured(record("add", "tickwheel", [10]))
    assert desk.report() == 0
    page = desk.page.read_text()
    assert "- Settings: transparent huge pages: never, CPU governor: powersave\n" in page
    assert "- Noise: other processes used 12 % of the processors' time, the host took 0.50 %; a fixed loop" in page
    assert "took 4 / 5 / 6 ms: it spreads by 40 %, the middle half by 0 %\n" in page


def test_a_run_that_does_not_say_how_the_machine_was_is_no_result(desk, capsys, monkeypatch):
    monkeypatch.setattr(f"{__name__}.CONDITIONS", {})
    desk.measured(record("add", "tickwheel", [10]))
    assert desk.report() == 1
    assert "measure again with make bench" in capsys.readouterr().err


def test_a_missed_target_is_shown_as_missed(desk, capsys):
    desk.measured(
        record("add", "tickwheel", [10, 10, 11]),
        record("add", "asyncio", [139, 139, 139]),
        record("add", "rloop", [40, 40, 44]),
        record("early", "tickwheel", [0, 0, 0], unit=""),
        record("bytes per timer", "tickwheel", [126, 126, 126], unit="bytes"),
    )
    assert desk.report() == 0
    assert desk.row("add", "asyncio", "≤ 1/14") == ["add", "asyncio", "≤ 1/14", "1/13.9", "**MISSED**"]
    assert desk.row("add", "rloop", "≤ 1/4") == ["add", "rloop", "≤ 1/4", "1/4", "met"]
    assert desk.row("bytes per timer", "—")[2:] == ["≤ 125 bytes", "126 bytes", "**MISSED**"]
    assert desk.row("early", "—")[3:] == ["0", "met"]
    assert desk.row("cancel", "uvloop")[3:] == ["—", "no figure"]
    assert "2 of 19 targets are met, 2 missed, 0 not judged, 15 without a figure." in desk.page.read_text()
    assert "MISSED" in capsys.readouterr().out


def test_a_target_is_not_judged_where_the_repeats_are_on_both_sides_of_it(desk):
    desk.measured(
        record("add", "tickwheel", [10, 10, 10]),
        record("add", "asyncio", [200, 160, 120]),  # ratios of 1/20, 1/16 and 1/12; 1/14 lies between
        record("add", "rloop", [39, 38, 30]),
        record("bytes per timer", "tickwheel", [120, 126, 126], unit="bytes"),
    )
    assert desk.report() == 0
    why = "not judged: the repeats spread by 53 %, the gap to the target is 12 %"
    assert desk.row("add", "asyncio", "≤ 1/14")[3:] == ["1/16", why]
    assert desk.row("add", "rloop", "≤ 1/4")[3:] == ["1/3.80", "**MISSED**"]
    why = "not judged: the repeats spread by 4.8 %, the gap to the target is 0.80 %"
    assert desk.row("bytes per timer", "—")[3:] == ["126 bytes", why]
    assert "0 of 19 targets are met, 1 missed, 2 not judged, 16 without a figure." in desk.page.read_text()


def test_repeats_are_compared_one_by_one_as_the_machine_may_change_between_them(desk):
    desk.measured(record("add", "tickwheel", [10, 20, 40]), record("add", "asyncio", [150, 300, 600]))
    assert desk.report() == 0
    assert desk.row("add", "asyncio", "≤ 1/14")[3:] == ["1/15", "met"]


@pytest.mark.parametrize(
    ("values", "repeats", "why"),
    [
        ([10, 10], 2, "not judged: 3 repeats are needed"),
        ([10, 10], 3, "not judged: 0 of 3 repeats can be compared"),  # which of them failed is not known
    ],
)
def test_a_target_is_not_judged_without_three_whole_repeats(desk, values, repeats, why):
    theirs = record("add", "asyncio", [1000] * repeats)
    desk.measured(record("add", "tickwheel", values), theirs, repeats=repeats)
    assert desk.report() == 0
    assert desk.row("add", "asyncio", "≤ 1/14")[3:] == ["1/100", why]


@pytest.mark.parametrize("values", [[0, 0, 0], [-1, -2, -3]])
def test_a_time_of_nothing_is_no_figure_to_compare(desk, values):
    desk.measured(record("add", "tickwheel", values), record("add", "asyncio", [1000] * 3))
    assert desk.report() == 0
    assert desk.row("add", "asyncio", "≤ 1/14")[3:] == ["—", "no figure"]


def test_a_repeat_that_failed_leaves_a_bound_without_a_verdict(desk):
    desk.measured(record("bytes per timer", "tickwheel", [100] * 4, unit="bytes"), repeats=5)
    assert desk.report() == 0
    why = "not judged: 4 of 5 repeats can be compared"
    assert desk.row("bytes per timer", "—")[3:] == ["100 bytes", why]


def test_what_must_never_happen_is_missed_if_it_happens_in_one_repeat(desk):
    desk.measured(record("early", "tickwheel", [0, 0, 3], unit=""))
    assert desk.report() == 0
    assert desk.row("early", "—")[3:] == ["3", "**MISSED**"]


def test_where_more_is_better_the_ratios_turn_round(desk):
    desk.measured(
        record("burst fire", "tickwheel", [900] * 3, unit="fires/s", better="higher"),
        record("burst fire", "asyncio", [100] * 3, unit="fires/s", better="higher"),
        record("burst fire", "rloop", [1800] * 3, unit="fires/s", better="higher"),
    )
    assert desk.report() == 0
    assert desk.row("burst fire", "asyncio")[2:] == ["≥ 8", "9", "met"]
    assert desk.row("burst fire", "rloop")[2:] == ["≥ 2", "0.500", "**MISSED**"]
    assert desk.row("burst fire (fires/s)")[1:] == ["900", "100", "**1,800**", "▼ rloop, 2 times"]


def test_the_chart_shows_how_many_times_tickwheels_figure_a_peer_takes(desk):
    desk.measured(
        record("add", "tickwheel", [10]),
        record("add", "tickwheel, slack_us=1000", [20]),
        record("add", "asyncio", [50]),
        record("burst fire", "tickwheel", [900], better="higher"),
        record("burst fire", "asyncio", [300], better="higher"),
        record("add, TimerTask", "tickwheel", [10]),
        record("early", "tickwheel", [0]),
        record("early", "asyncio", [0]),
    )
    charts, results = map(importlib.import_module, ("benches.report.charts", "benches.report.results"))
    rows = charts.compare(results.read(desk.results)["python"])
    assert rows == {
        "add": {"tickwheel, slack_us=1000": pytest.approx(2), "asyncio": pytest.approx(5)},
        "burst fire": {"asyncio": pytest.approx(3)},
    }


def test_a_target_may_be_held_against_another_work_of_ours(desk):
    desk.measured(
        record("memory at peak", "tickwheel", [40] * 3, unit="bytes/timer"),
        record("memory after all have gone", "tickwheel", [5] * 3, unit="% of peak"),
        record("pair, 1 thread", "tickwheel", [10] * 3),
        record("pair, 2 threads", "tickwheel", [14] * 3),
        suite="rust",
    )
    assert desk.report() == 0
    assert desk.row("memory at peak", "—")[3:] == ["40 bytes", "met"]
    assert desk.row("memory after all have gone", "tickwheel: memory at peak")[2:] == ["≤ 0.1", "0.0500", "met"]
    assert desk.row("pair, 2 threads", "tickwheel: pair, 1 thread")[2:] == ["≤ 1.3", "1.40", "**MISSED**"]


def test_a_suite_without_targets_has_no_table_of_them(desk):
    desk.page.write_text(PAGE + "\n<!-- generated: kafka -->\n<!-- end -->\n")
    desk.measured(record("insert", "tickwheel", [10]), record("insert", "Kafka's SystemTimer", [50]), suite="kafka")
    assert desk.report() == 0
    assert desk.row("insert (ns)") == ["insert (ns)", "**10**", "50", ""]
    assert "argets" not in desk.page.read_text()
    assert (desk.docs / "benchmarks-kafka.svg").exists()


def test_a_remark_of_the_suite_stands_once_and_cannot_break_a_table(desk):
    note = "cancel leaves a mark | the heap keeps it"
    ours = record("add", "tickwheel", [1], note="of all")
    add = record("add", "heapq thread", [1])
    desk.measured(
        ours, add, record("a|b", "heapq thread", [1], note=note), record("cancel", "heapq thread", [1], note=note)
    )
    assert desk.report() == 0
    assert desk.page.read_text().count(f"- heapq thread, a|b; cancel: {note}\n") == 1
    assert desk.page.read_text().count("- tickwheel: of all\n") == 1
    assert "| a\\|b (ns) | — | 1 |" in desk.page.read_text()


@pytest.mark.parametrize(
    "broken",
    [
        PAGE.replace("<!-- generated: python -->", ""),
        PAGE.replace("Python\n<!-- end -->", "Python\n"),
        PAGE.replace("Rust\n<!-- end -->", "Rust\n"),
        PAGE + "<!-- generated: python -->\n<!-- end -->\n",
    ],
    ids=["no start", "no end", "no end of the one before", "two starts"],
)
def test_missing_markers_are_an_error_and_nothing_is_written(desk, capsys, broken):
    desk.page.write_text(broken)
    for suite in ("rust", "python"):
        desk.measured(record("add", "tickwheel", [10]), record("add", "DelayQueue", [20]), suite=suite)
    assert desk.report() == 1
    error = capsys.readouterr().err
    assert "must have one line '<!-- generated: " in error
    assert "put them where the part belongs" in error
    assert desk.page.read_text() == broken
    assert list(desk.docs.glob("*.svg")) == []


def test_without_any_results_it_says_how_to_get_them(desk, capsys):
    assert desk.report() == 1
    assert "make bench" in capsys.readouterr().err
    assert desk.page.read_text() == PAGE


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([record("add", "tickwheel", [])], "records[0].values"),
        ([record("add", "tickwheel", [1]), record("add", "tickwheel", [2])], "two records of 'tickwheel'"),
        ([record("add", "tickwheel", [1]), record("add", "asyncio", [2], unit="µs")], "make them the same"),
        ([record("bytes per timer", "tickwheel", [1], unit="KiB")], "its target is in 'bytes'"),
    ],
    ids=["no values", "twice", "two units", "not the target's unit"],
)
def test_results_that_cannot_be_compared_are_an_error(desk, capsys, records, said):
    desk.measured(*records)
    assert desk.report() == 1
    assert said in capsys.readouterr().err
    assert desk.page.read_text() == PAGE


def test_two_runs_of_a_suite_are_not_mixed(desk, capsys):
    for name in ("first", "second"):
        desk.measured(record("add", "tickwheel", [1]), name=name)
    assert desk.report() == 1
    assert "remove all but one" in capsys.readouterr().err


def test_figures_are_written_as_their_example_says(desk):
    assert doctest.testmod(importlib.import_module("benches.report.figures")) == (0, 3)


def test_the_page_of_this_repository_has_the_markers(desk):
    for page in ("benchmarks.md", "queues.md"):
        (desk.docs / page).write_text((ROOT / "docs/internals" / page).read_text())
    for suite in importlib.import_module("benches.report.results").SUITES:
        desk.measured(record("add", "tickwheel", [10]), suite=suite)
    assert desk.report() == 0
