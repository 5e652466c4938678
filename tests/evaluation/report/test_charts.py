"""Charts that compare arms."""

from __future__ import annotations

import re

from example_results import arm, comparison, figure, metrics

from stallward.evaluation.report.charts import styles, trade_chart
from stallward.evaluation.results.comparison import ArmResult


def drawn(p95_ms: float, work: float) -> ArmResult:
    return arm(
        metrics(
            p95_ms=figure(p95_ms, 0.8 * p95_ms, 1.3 * p95_ms),
            background_work=figure(work, work - 0.04, work + 0.04),
        )
    )


def test_no_label_of_the_chart_lies_on_the_dot_of_another_arm() -> None:
    """An arm with a little more work and as much latency has its dot where the label would be."""
    arms = {"none": drawn(963.0, 0.48), "latd": drawn(78.4, 0.51), "ppo": drawn(85.9, 0.53)}
    table = comparison(arms, alone_p95_ms=60.4, slo_ms=112.0).table
    picture = trade_chart(table, styles(list(arms)))
    dots, labels = {}, {}
    for label in arms:
        group = picture[picture.index(f'data-arm="{label}"') :]
        dot = re.search(r'<circle[^>]*cx="([^"]+)" cy="([^"]+)"', group)
        text = re.search(rf'<text x="([^"]+)" y="([^"]+)"[^>]*>{label}<', group)
        assert dot
        assert text
        dots[label] = float(dot[1]), float(dot[2])
        labels[label] = float(text[1]), float(text[2])
    (x, y), (dot_x, dot_y) = labels["latd"], dots["ppo"]
    assert x - 8 < dot_x < x + 28, "the dot is in the columns of the letters"
    assert not y - 14 < dot_y < y + 5, "so the label must be above or below it"
    # A label without neighbours is close to its own dot.
    assert abs(labels["none"][1] - dots["none"][1]) < 10
