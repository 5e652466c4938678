"""What the demo shows first: a small table, and what a user gains, in words. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Final, Literal

from stallward.actuator.cli.output import duration
from stallward.evaluation.report.opening import Opening
from stallward.evaluation.report.text import cell, number, short, target
from stallward.evaluation.results.comparison import (
    ComparisonResult,
    Contrast,
    Metrics,
    Table,
)
from stallward.evaluation.results.interval import UNKNOWN, Interval

WIDTH: Final = 100
"""Columns of the terminal that everything has to fit."""
DEFAULT: Final = "partition"
"""The arm of the controller that decides by default."""
FRESH: Final = "fresh"
"""The arm of the policy that the demo trains."""
_NOTICEABLE: Final = 1.02
"""A certain difference by a smaller factor makes no controller the better one."""
HEADERS: Final = ("arm", "", "p95 ms", "target met", "work done", "killed")

_MEANINGS: Final = {
    "none": "no control",
    "latd": "published rule",
    DEFAULT: "shares, default",
    "ppo": "shipped policy",
    FRESH: "trained just now",
}
_SEEN: Final = (
    "The numbers of partition were chosen and the shipped policy was trained with this scenario, "
    "among others; "
    "docs/results.md has measurements of scenarios that neither had seen."
)
_WHOLE_FROM: Final = 9.95
_TWO_DECIMALS_BELOW: Final = 1.095
_MANY: Final = 1000.0
"""Factors above it say no more than that there are too few blocks."""

Change = Literal["lower", "higher", "unclear"]
"""Whether a figure is certainly lower or higher than another."""


def first_screen(result: ComparisonResult, *, trained_s: float, seen: bool) -> Opening:
    """The table of the demo, the sentence under it, and the notes under that.

    Args:
        result: A comparison of the arms of the demo.
        trained_s: How long the fresh policy was trained.
        seen: Whether what ships was chosen and trained with this scenario.
    """
    table = result.table
    return Opening(
        headline=gain(result),
        headers=HEADERS,
        rows=demo_rows(table),
        target=f"Target: {target(table)} ({table.slo_source}). "
        "Work is relative to having the node alone. Brackets are 95 % intervals.",
        notes=(
            _policy_note(table),
            _latd_note(table),
            _fresh_note(table, trained_s),
            *((_SEEN,) if seen else ()),
        ),
    )


def wrap(text: str) -> str:
    """Fold a sentence to the terminal, without a line break between a number and its unit."""
    joined = re.sub(r"(?<=\d) (?=%|ms|s\b)", "\N{NO-BREAK SPACE}", text)
    return textwrap.fill(joined, WIDTH).replace("\N{NO-BREAK SPACE}", " ")


def demo_rows(table: Table) -> tuple[tuple[str, ...], ...]:
    """A row for each condition, references first; with the headers within ``WIDTH`` columns."""
    alone, ample = table.references.alone, table.references.ample
    return (
        # There is no background to do work.
        ("alone", "no background", *_cells(alone)[:2], "", ""),
        ("ample", "enough memory", *_cells(ample), ""),
        *(
            (
                short(label),
                _MEANINGS.get(label, ""),
                *_cells(arm.metrics),
                str(arm.facts.ended_processes),
            )
            for label, arm in table.arms.items()
        ),
    )


def _cells(metrics: Metrics) -> tuple[str, str, str]:
    return (
        cell(metrics.p95_ms, "ms"),
        _share_cell(metrics.slo_attainment),
        _share_cell(metrics.background_work),
    )


def gain(result: ComparisonResult) -> str:
    """What a user gains by the default controller and by the shipped policy over no control.

    It says so where p95 is certainly higher, or not certainly different, and it names the price.
    """
    table = result.table
    none, rule, policy = (table.arms[arm].metrics for arm in ("none", DEFAULT, "ppo"))
    where = "On the twin, without" if result.mode == "twin" else "Without"
    return (
        f"{where} control, p95 is {_ms(none)}. The rule partition, which decides by default, "
        f"{_effect(table, DEFAULT)}; the shipped policy {_effect(table, 'ppo')}. "
        f"The target is met {_share(rule.slo_attainment)} of the time with the rule and "
        f"{_share(policy.slo_attainment)} with the policy, instead of "
        f"{_share(none.slo_attainment)}. The background then does "
        f"{_share(rule.background_work)} and {_share(policy.background_work)} of the work that "
        f"it does alone, instead of {_share(none.background_work)}."
    )


def _effect(table: Table, arm: str) -> str:
    """What an arm does to p95, as far as it is certain."""
    p95 = _ms(table.arms[arm].metrics)
    ratio = _p95_ratio(table, arm, "none")
    change = _change(ratio)
    if change == "unclear":
        return f"has {p95}, which is not certainly different"
    return f"{'lowers' if change == 'lower' else 'raises'} it {_factors(ratio)} times, to {p95}"


def _policy_note(table: Table) -> str:
    """Whether the shipped policy is better than the rule, in latency and in work."""
    latency = _change(_p95_ratio(table, "ppo", DEFAULT), least=_NOTICEABLE)
    work = _change(_work_ratio(table, "ppo", DEFAULT), least=_NOTICEABLE)
    gains = (latency == "lower") + (work == "higher")
    losses = (latency == "higher") + (work == "lower")
    differences = _against(table, "ppo", DEFAULT)
    if not gains and not losses:
        return f"This run cannot say whether the policy or the rule is better: {differences}."
    if gains and losses:
        verdict = "Neither the policy nor the rule is better in both"
    else:
        verdict = f"The {'policy' if gains else 'rule'} is the better of the two here"
    return f"{verdict}. The policy against the rule: {differences}."


def _latd_note(table: Table) -> str:
    """What the published rule kills, and whether what ships is better."""
    killed = table.arms["latd"].facts.terminated_processes
    count = f"{killed or 'no'} background process{'es' * (killed != 1)}"
    rule, policy = (_against(table, arm, "latd") for arm in (DEFAULT, "ppo"))
    differences = f"{rule}. The policy against latd: {policy}"
    return (
        f"latd, the published rule, killed {count}. The rule partition "
        f"{'and the policy ' if rule == policy else ''}against latd: "
        f"{rule if rule == policy else differences}."
    )


def _fresh_note(table: Table, trained_s: float) -> str:
    """How the policy that was just trained does beside the shipped one."""
    return (
        f"The fresh policy was trained by this demo in {duration(trained_s)}, to show the whole "
        "way; the shipped one was trained for longer, on many scenarios. "
        f"Fresh against shipped: {_against(table, FRESH, 'ppo')}."
    )


def _against(table: Table, arm: str, other: str) -> str:
    """What is certainly different between two arms."""
    ratios = {"p95": _p95_ratio(table, arm, other), "work": _work_ratio(table, arm, other)}
    if all(_change(ratio) == "unclear" for ratio in ratios.values()):
        return "neither p95 nor work is certainly different"
    return ", ".join(
        f"{name} not certainly different"
        if _change(ratio) == "unclear"
        else f"{name} {_times(ratio)}"
        for name, ratio in ratios.items()
    )


def _p95_ratio(table: Table, arm: str, other: str) -> Interval:
    return _ratio(table, arm, other, lambda pair: pair.p95_ratio)


def _work_ratio(table: Table, arm: str, other: str) -> Interval:
    return _ratio(table, arm, other, lambda pair: pair.background_work_ratio)


def _ratio(table: Table, arm: str, other: str, of: Callable[[Contrast], Interval]) -> Interval:
    """A figure of one arm over that of another, whichever way round the contrast stands."""
    for pair in table.contrasts:
        if (pair.arm, pair.against) == (arm, other):
            return of(pair)
        if (pair.arm, pair.against) == (other, arm):
            return _inverse(of(pair))
    return UNKNOWN


def _change(ratio: Interval, least: float = 1.0) -> Change:
    """Whether a ratio is certainly below or above 1 by its interval, by the factor ``least``."""
    if ratio.low is None or ratio.high is None:
        return "unclear"
    if ratio.high < 1.0 / least:
        return "lower"
    return "higher" if ratio.low > least else "unclear"


def _inverse(ratio: Interval) -> Interval:
    def inverse(value: float | None) -> float | None:
        return None if value is None else 1.0 / value if value else float("inf")

    return Interval(value=inverse(ratio.value), low=inverse(ratio.high), high=inverse(ratio.low))


def _times(ratio: Interval) -> str:
    """A ratio that is certainly not 1 in words, as ``33 to 151 times lower``."""
    return f"{_factors(ratio)} times {_change(ratio)}"


def _factors(ratio: Interval) -> str:
    """By how much a ratio is certainly not 1, in either direction."""
    factor = _inverse(ratio) if _change(ratio) == "lower" else ratio
    return " to ".join(_factor(end) for end in (factor.low, factor.high) if end is not None)


def _factor(value: float) -> str:
    if value >= _WHOLE_FROM:
        return f"{value:.0f}" if value < _MANY else f"over {_MANY:.0f}"
    return f"{value:.2f}" if value < _TWO_DECIMALS_BELOW else f"{value:.1f}"


def _ms(metrics: Metrics) -> str:
    return f"{number(metrics.p95_ms.value, 'ms')} ms"


def _share(figure: Interval) -> str:
    return "0 %" if figure.value == 0.0 else number(figure.value, "share")


def _share_cell(figure: Interval) -> str:
    if figure.low is None or figure.high is None:
        return _share(figure)
    low, high = (number(end, "share").removesuffix(" %") for end in (figure.low, figure.high))
    return f"{_share(figure)} [{low}..{high}]"
