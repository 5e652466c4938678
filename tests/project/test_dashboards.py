"""The dashboards and the recording rules show what there is, and promtool understands them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stallward.actuator.service.metrics.table import METRICS

ROOT = Path(__file__).parents[2]


def shown_labels(text: str) -> set[str]:
    return set(re.findall(r"{{(\w+)}}", text))


def metrics_in(text: str) -> list[str]:
    """The metrics that an expression uses; those of a histogram go by its name."""
    return [name.removesuffix("_bucket") for name in re.findall(r"stallward_\w+", text)]


def check_places(panels: list[Any]) -> None:
    """No panel covers another, and all have numbers of their own."""
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_dashboard_shows_metrics_that_exist_and_no_panel_covers_another() -> None:
    board = json.loads((ROOT / "docs/reference/dashboard.json").read_text())
    panels = board["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for text in expressions for name in metrics_in(text)}
    assert used <= {metric.name for metric in METRICS}
    assert len(used) > 12
    rates = [text for text in expressions if "rate(" in text]
    assert all("[$__rate_interval]" in text for text in rates), "whatever the zoom and the scrape"
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for panel in panels:
        for target in panel["targets"]:
            (first, *_) = metrics_in(target["expr"])
            assert shown_labels(target["legendFormat"]) <= labels[first], panel["title"]
    check_places(panels)


def test_the_rules_of_the_fleet_use_metrics_and_its_dashboard_uses_rules() -> None:
    rules = yaml.safe_load((ROOT / "docs/reference/fleet-rules.yml").read_text())
    recorded = {rule["record"]: rule for rule in rules["groups"][0]["rules"]}
    metrics = {metric.name for metric in METRICS}
    for rule in recorded.values():
        used = set(re.findall(r"(?<![\w:])stallward_\w+", rule["expr"]))
        assert used <= metrics, rule["record"]
        rules_used = set(re.findall(r"(?:instance|stallward):[\w:]+", rule["expr"]))
        assert rules_used <= set(recorded), rule["record"]
    board = json.loads((ROOT / "docs/reference/fleet-dashboard.json").read_text())
    check_places(board["panels"])
    for panel in board["panels"]:
        for target in panel["targets"]:
            found = re.findall(r"(?:instance|stallward):[\w:]+|stallward_\w+", target["expr"])
            assert set(found) <= set(recorded) | metrics, panel["title"]
            kept = re.findall(r"by \(([\w, ]+)\)", recorded.get(found[0], {}).get("expr", ""))
            labels = {name.strip() for text in kept for name in text.split(",")}
            labels |= set(recorded.get(found[0], {}).get("labels", ()))
            assert shown_labels(target["legendFormat"]) <= labels, panel["title"]


FLEET_RULES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'stallward_build_info{{instance="a",job="j",version="1"}}', values: '1x10'}}
      - {{series: 'stallward_build_info{{instance="b",job="j",version="1"}}', values: '1x10'}}
      - {{series: 'stallward_loop_silence_seconds{{instance="a",job="j"}}', values: '1x10'}}
      - {{series: 'stallward_loop_silence_seconds{{instance="b",job="j"}}', values: '60x10'}}
      - {{series: 'stallward_slo_seconds{{instance="a",job="j"}}', values: '0.1x10'}}
      - {{series: 'stallward_slo_seconds{{instance="b",job="j"}}', values: '0.1x10'}}
      - series: 'stallward_request_latency_seconds{{instance="a",job="j",stat="p95"}}'
        values: '0.05x10'
      - series: 'stallward_request_latency_seconds{{instance="b",job="j",stat="p95"}}'
        values: '0.2x10'
      - series: 'stallward_controller_in_force{{instance="a",job="j",controller="rule"}}'
        values: '1x10'
      - series: 'stallward_controller_in_force{{instance="b",job="j",controller="onnx"}}'
        values: '1x10'
    promql_expr_test:
      - expr: stallward:nodes:count
        eval_time: 10m
        exp_samples: [{{labels: 'stallward:nodes:count{{version="1"}}', value: 2}}]
      - expr: stallward:nodes_ticking:count
        eval_time: 10m
        exp_samples: [{{labels: 'stallward:nodes_ticking:count', value: 1}}]
      - expr: stallward:nodes_missing_target:count
        eval_time: 10m
        exp_samples: [{{labels: 'stallward:nodes_missing_target:count', value: 1}}]
      - expr: stallward:attainment_by_controller:ratio5m
        eval_time: 10m
        exp_samples:
          - labels: 'stallward:attainment_by_controller:ratio5m{{controller="onnx"}}'
            value: 0
          - labels: 'stallward:attainment_by_controller:ratio5m{{controller="rule"}}'
            value: 1
      - expr: stallward:p95_over_target:quantile{{quantile="0.5"}}
        eval_time: 10m
        exp_samples:
          - labels: 'stallward:p95_over_target:quantile{{quantile="0.5"}}'
            value: 1.25
"""


def test_the_rules_of_the_fleet_say_what_two_nodes_do(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    file = tmp_path / "test.yml"
    file.write_text(FLEET_RULES.format(rules=ROOT / "docs/reference/fleet-rules.yml"))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_configurations_of_the_page(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    page = (ROOT / "docs/how-to/roll-out-a-policy.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    shutil.copy(ROOT / "docs/reference/fleet-rules.yml", tmp_path)
    file = tmp_path / "prometheus.yml"
    for block in blocks:
        config = yaml.safe_load(block)
        for job in config["scrape_configs"]:
            job.pop("kubernetes_sd_configs", None)  # Debian's Prometheus is built without it
        file.write_text(yaml.safe_dump(config))
        done = subprocess.run(
            [promtool, "check", "config", str(file)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
