"""The alerts, the dashboard and the page of the metrics against what `GET /metrics` really has (rule D15)."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tickwheel.delivery.sinks import Destination

from .conftest import Served

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[4]
ALERTS = ROOT / "ops/prometheus/alerts.yaml"
DASHBOARD = ROOT / "ops/grafana/tickwheel.json"
OF_PROMETHEUS = {"job", "instance", "service"}
# Of PromQL, what looks like a metric and is none.
WORDS = {
    *("and", "on", "by", "sum", "rate", "increase", "changes", "absent", "time", "histogram_quantile"),
    *("predict_linear", "label_values", "or", "unless", "max", "topk"),
}
SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^}]*)\})?")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None and os.environ.get("CI") != "true",
    reason="promtool, of Debian's package prometheus, is missing",
)


@pytest.fixture(scope="module")
def families(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Metric]:
    """Those of a named destination are of one that was sent to, and those of a tenant of one that is paused."""
    named = Served(tmp_path_factory.mktemp("named"), to=Destination.named())
    try:
        named.ask("PUT", "/destinations/gone", {"url": "http://127.0.0.1:9/"})
        named.ask("POST", "/messages", {"id": "a", "delay_ms": 0, "destination": "gone"})
        named.ask("POST", "/pause?tenant=t")
        named.ask("POST", "/messages", {"id": "b", "delay_ms": 0, "destination": "gone", "tenant": "t"})
        wanted = ('failed_attempts_total{destination="gone"}', 'overdue_messages{tenant="t"}')
        while not all(each in (text := named.ask("GET", "/metrics").body) for each in wanted):
            threading.Event().wait(0.01)
    finally:
        named.close()
    of_named = {it.name: it for it in text_string_to_metric_families(text) if _labels(it) & {"destination", "tenant"}}
    found = text_string_to_metric_families(served.ask("GET", "/metrics").body)
    return [of_named.get(family.name, family) for family in found]


def _labels(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels}


@pytest.fixture(scope="module")
def values(families: Sequence[Metric]) -> Mapping[str, Mapping[str, set[str]]]:
    """For each name, its labels with their values."""
    found: dict[str, dict[str, set[str]]] = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = found.setdefault(sample.name, {})
        for label, value in sample.labels.items():
            labels.setdefault(label, set()).add(value)
    return found


def alerts() -> Mapping[str, str]:
    """The expressions by the names of the alerts. The file is read line by line, as there is no parser of YAML here."""
    found = {}
    for rule in re.split(r"\n      - alert: ", ALERTS.read_text())[1:]:
        expression = re.search(r"\n        expr: (?:>-\n)?(.*?)\n        (?:for|labels):", rule, re.DOTALL)
        assert expression is not None
        found[rule.split("\n")[0]] = " ".join(expression[1].split())
    return found


def queries(node: Any) -> Iterator[str]:
    """What the dashboard asks for, with a value for each variable."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("expr", "definition"):
                yield value.replace("$__rate_interval", "5m").replace("$job", "tickwheel").replace("$instance", ".*")
            yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


def check(query: str, values: Mapping[str, Mapping[str, set[str]]]) -> set[str]:
    """The metrics that a query names: each exists, with the labels and the values that it asks for."""
    names = set()
    # `by (job, le)` and `on (job)` have labels; a range and a text have no names.
    grouped = {label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for label in group.split(", ")}
    rest = re.sub(r"\b(?:by|on) \([^)]*\)|\[[^]]*\]|, (?:job|instance)\)", " ", query)
    for name, matchers in SELECTOR.findall(rest):
        if name in WORDS or re.fullmatch(r"e\d+", name):
            continue
        assert name in values or name == "up", f"{query} names {name}, which is no metric"
        names.add(name)
        for label, wanted in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
            assert label in OF_PROMETHEUS or wanted in values[name].get(label, ()), f"{query}: {label}={wanted!r}"
    known = OF_PROMETHEUS.union(*(values.get(name, ()) for name in names))
    assert grouped <= known, f"{query} groups by {sorted(grouped - known)}"
    return names


def test_every_alert_asks_for_what_there_is__D15(values: Mapping[str, Mapping[str, set[str]]]) -> None:
    assert len(alerts()) == ALERTS.read_text().count("- alert:") > 10
    for query in alerts().values():
        assert check(query, values)


def test_the_dashboard_asks_for_what_there_is_and_shows_all__D15(
    values: Mapping[str, Mapping[str, set[str]]],
) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [*queries(dashboard)]
    shown = set.union(*(check(query, values) for query in asked))
    of_histograms = {name for name in values if name.endswith(("_sum", "_count"))}
    assert {name for name in values if name.startswith("tickwheel_")} - of_histograms == {
        name for name in shown if name.startswith("tickwheel_")
    }
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


def test_the_page_has_every_metric_as_it_is__D15(families: Sequence[Metric]) -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith(("| `tickwheel_", "| `process_"))]
    told = {row[0][3:-1]: (row[1].partition(",")[0], set(re.findall(r"`(\w+)`", row[1]))) for row in rows}
    found = {}
    for family in families:
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = (family.type, _labels(family))
    assert told == found
    # Each alert stands at the metrics that it goes by.
    for row in rows:
        named = {name for name in alerts() if re.search(rf"\b{row[0][3:-1]}(?:_bucket)?\b", alerts()[name])}
        assert set(re.findall(r"Tickwheel\w+", row[-1])) == named, row
    assert set(re.findall(r"Tickwheel\w+", page)) == set(alerts())


def test_each_value_of_a_label_is_explained__D15(values: Mapping[str, Mapping[str, set[str]]]) -> None:
    words = set(re.findall(r"`(\w+)`", (ROOT / "docs/metrics.md").read_text()))
    for name, labels in values.items():
        for label, known in labels.items():
            assert label in ("le", "version", "destination", "tenant") or known <= words, name


@needs_promtool
def test_prometheus_takes_the_alerts_and_they_fire_when_they_should__D15() -> None:
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=ALERTS.parent, capture_output=True, text=True, timeout=50)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@needs_promtool
def test_prometheus_takes_what_the_dashboard_asks_for__D15(tmp_path: Path) -> None:
    asked = [query for query in queries(json.loads(DASHBOARD.read_text())) if not query.startswith("label_values")]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(asked)]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert f"{len(asked)} rules found" in done.stdout
