"""The table of the demo fits a terminal, and the text under it claims no more than its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from example_results import arm, comparison, exactly, figure, metrics

from stallward.evaluation.demo.run import HEADERS, WIDTH, demo_rows, first_screen, wrap
from stallward.evaluation.results.comparison import (
    ArmFacts,
    ArmResult,
    ComparisonResult,
    Contrast,
)
from stallward.evaluation.results.interval import Interval

ALIKE = figure(1.0, 0.8, 1.25)
LOWER = figure(0.1, 0.05, 0.2)
HARDLY_LOWER = figure(0.995, 0.99, 0.999)
HIGHER = figure(3.0, 2.0, 4.0)


def contrast(one: str, other: str, p95: Interval = ALIKE, work: Interval = ALIKE) -> Contrast:
    return Contrast(
        arm=one,
        against=other,
        mean_ratio=ALIKE,
        p50_ratio=ALIKE,
        p95_ratio=p95,
        p99_ratio=ALIKE,
        background_work_ratio=work,
        slo_attainment_difference=ALIKE,
    )


def measured(p95_ms: float, met: float, work: float, killed: int = 0) -> ArmResult:
    return arm(
        metrics(
            p95_ms=exactly(p95_ms), slo_attainment=exactly(met), background_work=exactly(work)
        ),
        ArmFacts(controller="x", terminated_processes=killed),
    )


def result(*contrasts: Contrast, killed: int = 0) -> ComparisonResult:
    example = comparison(
        {
            "none": measured(900.0, 0.0, 0.5),
            "latd": measured(80.0, 0.8, 0.4, killed),
            "partition": measured(60.0, 0.9, 0.1),
            "ppo": measured(70.0, 0.92, 0.45),
            "fresh": measured(75.0, 0.7, 0.45),
        }
    )
    return replace(example, table=replace(example.table, contrasts=contrasts))


def screen(
    *contrasts: Contrast, killed: int = 0, seen: bool = False
) -> tuple[str, tuple[str, ...]]:
    opening = first_screen(result(*contrasts, killed=killed), trained_s=54.0, seen=seen)
    return opening.headline, opening.notes


def width(rows: tuple[tuple[str, ...], ...]) -> int:
    """Return the width of the table on a terminal, with two blanks between cells."""
    return sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2


def test_the_table_describes_each_condition() -> None:
    rows = demo_rows(result(killed=3).table)
    assert [row[0] for row in rows] == [
        "alone",
        "ample",
        "none",
        "latd",
        "partition",
        "ppo",
        "fresh",
    ]
    assert rows[0][-2:] == ("", ""), "alone, there is no background"
    assert rows[3][1:3] == ("published rule", "80.0 [80.0..80.0]")
    assert [row[-1] for row in rows[2:]] == ["0", "3", "0", "0", "0"]


@pytest.mark.parametrize(
    "ends", [(1.0, 2.0), (1.0, 999_999.0), (12.3, 1_234_567.0), (0.01, 8.9e15)]
)
def test_the_table_fits_the_terminal(ends: tuple[float, float]) -> None:
    example = result()
    share = figure(0.123, 0.101, 1.0)
    wide = metrics(
        p95_ms=figure(123456.0, *ends),
        slo_attainment=share,
        background_work=share,
    )
    arms = {label: arm(wide, ArmFacts(controller="x")) for label in example.table.arms}
    rows = demo_rows(replace(example.table, arms=arms))
    assert width((HEADERS, *rows)) <= WIDTH


def test_the_sentence_names_the_gain() -> None:
    headline, _ = screen(contrast("none", "partition", figure(10.0, 5.0, 20.0)))
    assert headline.startswith(
        "Without control, p95 is 900 ms. The rule partition, which decides by default, lowers it "
        "5.0 to 20 times, to 60.0 ms; the shipped policy has 70.0 ms, which is not certainly "
        "different. The target is met 90 % of the time with the rule and 92 % with the policy, "
        "instead of 0 %."
    )


def test_the_sentence_names_the_price() -> None:
    headline, _ = screen()
    assert headline.endswith(
        "The background then does 10 % and 45 % of the work that it does alone, instead of 50 %."
    )


def test_the_sentence_says_that_nothing_is_gained() -> None:
    headline, _ = screen(contrast("none", "partition"), contrast("none", "ppo", LOWER))
    assert "by default, has 60.0 ms, which is not certainly different" in headline
    assert "the shipped policy raises it 5.0 to 20 times, to 70.0 ms" in headline


def test_an_arm_that_no_contrast_names_is_not_certainly_different() -> None:
    headline, _ = screen()
    assert headline.count("not certainly different") == 2


def test_the_sentence_says_that_the_twin_was_measured() -> None:
    on_twin = replace(result(), mode="twin")
    opening = first_screen(on_twin, trained_s=54.0, seen=False)
    assert opening.headline.startswith("On the twin, without control,")


@pytest.mark.parametrize(
    ("p95", "work", "verdict"),
    [
        (ALIKE, LOWER, "The policy is the better of the two here."),
        (HIGHER, HIGHER, "Neither the policy nor the rule is better in both."),
        (HIGHER, LOWER, "The policy is the better of the two here."),
        (LOWER, ALIKE, "The rule is the better of the two here."),
        (ALIKE, HIGHER, "The rule is the better of the two here."),
        (ALIKE, ALIKE, "This run cannot say whether the policy or the rule is better:"),
        (ALIKE, HARDLY_LOWER, "This run cannot say whether the policy or the rule is better:"),
    ],
)
def test_the_policy_is_called_better_only_where_it_is(
    p95: Interval, work: Interval, verdict: str
) -> None:
    _, notes = screen(contrast("partition", "ppo", p95, work))  # the rule over the policy
    assert notes[0].startswith(verdict)


def test_a_certain_difference_has_its_factor() -> None:
    _, notes = screen(contrast("partition", "ppo", HIGHER, ALIKE))
    assert notes[0].endswith(
        "The policy against the rule: p95 2.0 to 4.0 times lower, work not certainly different."
    )
    _, notes = screen()
    assert notes[0].endswith("neither p95 nor work is certainly different.")


@pytest.mark.parametrize(
    ("killed", "words"),
    [(0, "no background processes"), (1, "1 background process."), (3, "3 background processes.")],
)
def test_kills_by_the_published_rule_are_reported(killed: int, words: str) -> None:
    _, notes = screen(killed=killed)
    assert f"killed {words}" in notes[1]


def test_a_published_rule_that_was_left_out_has_no_row_and_no_note() -> None:
    example = result()
    arms = {label: one for label, one in example.table.arms.items() if label != "latd"}
    without = replace(example, table=replace(example.table, arms=arms))
    opening = first_screen(without, trained_s=54.0, seen=False)
    assert "latd" not in [row[0] for row in opening.rows]
    assert [note for note in opening.notes if "latd" in note] == []
    assert len(opening.notes) == 2


def test_the_note_on_the_fresh_policy_has_its_training_time_and_its_difference() -> None:
    _, notes = screen(contrast("ppo", "fresh", figure(0.5, 0.4, 0.6)))
    assert "trained by this demo in 54 s" in notes[2]
    assert notes[2].endswith("p95 1.7 to 2.5 times higher, work not certainly different.")


def test_a_training_scenario_is_named_as_one() -> None:
    assert len(screen(seen=False)[1]) == 3
    assert "trained with this scenario" in screen(seen=True)[1][-1]


def test_a_number_stays_with_its_unit() -> None:
    for shift in range(12):
        lines = wrap("x" * shift + " a target of 27 % in 3976 ms after 54 s" * 6)
        assert max(map(len, lines)) <= WIDTH
        assert not [line for line in lines if line.startswith(("%", "ms ", "s "))]


def test_a_result_shared_by_rule_and_policy_is_written_once() -> None:
    _, notes = screen(killed=2)
    assert notes[1].endswith(
        "The rule partition and the policy against latd: neither p95 nor work is certainly "
        "different."
    )
    _, notes = screen(contrast("latd", "partition", HIGHER), killed=2)
    assert "The rule partition against latd: p95 2.0 to 4.0 times lower" in notes[1]
    assert "The policy against latd: neither" in notes[1]
