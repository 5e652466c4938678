"""What the screen shows is what the ticks say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from top_ticks import tick

from stallward.actuator.cli.top.history import HISTORY_S, MOST_CHANGES, History
from stallward.actuator.cli.top.text import (
    SORTS,
    bars,
    change_line,
    decider,
    group_rows,
    headline,
    latency_top_ms,
    whole,
)
from stallward.agent.sample import ApplicationSample, LatencySample


def test_without_a_tick_there_is_nothing_to_show() -> None:
    assert History(60.0).view() is None


def test_rates_are_measured_over_the_last_second() -> None:
    history = History(60.0)
    for number in range(10):
        # The application stalls for half of each of the last two ticks.
        history.add(tick(number, stalled_us=250_000 * max(number - 7, 0)))
    view = history.view()
    assert view is not None
    assert view.applications[0].cpu_cores == pytest.approx(0.5)
    assert view.applications[0].refaults_per_s == pytest.approx(100.0)
    assert view.applications[0].memory_stall_share == pytest.approx(0.5)
    assert view.slots[0].cpu_cores is None, "what was not counted is not zero"


def test_the_share_that_met_the_target_counts_seconds_by_their_worst_tick() -> None:
    history = History(60.0)
    for number in range(20):  # ten seconds, of which two have one tick above the target
        history.add(tick(number, p95_ms=90.0 if number in {4, 11} else 20.0))
    view = history.view()
    assert view is not None
    assert view.attainment == pytest.approx(0.8)
    assert view.p95_history_ms.count(90.0) == 2
    assert headline(view) == (
        "p95 20 ms of at most 60 ms, kept in 80 % of the last 60 s   memory 500 of 600 MiB"
    )


def test_of_several_applications_each_has_a_row_and_the_worst_the_headline() -> None:
    history = History(100.0)  # cannot be the target of several
    for number in range(10):
        record = tick(number, p95_ms=90.0)
        group = replace(record.sample.protected, memory_usage_bytes=100 << 20)
        both = tuple(
            ApplicationSample(
                name=name, slo_ms=slo_ms, group=group, latency=LatencySample(p95_ms=p95_ms)
            )
            for name, slo_ms, p95_ms in (("db", 10.0, 15.0), ("web", 40.0, 20.0))
        )
        several = replace(record.sample, applications=both)
        history.add(replace(record, sample=several, slo_ms=60.0))
    view = history.view()
    assert view is not None
    assert headline(view).startswith("db: p95 15 ms of at most 10 ms, kept in 0 %")
    rows = group_rows(view)
    assert [row[0] for row in rows] == ["db (15 of 10 ms)", "web (20 of 40 ms)", "hog"]
    assert rows[0][1] == "100"
    assert view.applications[1].cpu_cores == pytest.approx(0.5)


def test_without_a_target_nothing_is_said_of_it() -> None:
    history = History()
    history.add(tick(0, p95_ms=None))
    view = history.view()
    assert view is not None
    assert headline(view) == "p95 -   memory 500 of 600 MiB"


def test_the_target_is_the_one_in_force_unless_one_is_given() -> None:
    now = replace(tick(0, p95_ms=20.0), slo_ms=10.0)
    replayed, reloaded = History(), History(reported_ms=60.0)
    assert reloaded.target_ms == 60.0, "an earlier version's records name none"
    given = History(60.0)
    for history in (replayed, reloaded, given):
        history.add(now)
    assert (replayed.target_ms, reloaded.target_ms, given.target_ms) == (10.0, 10.0, 60.0)
    view = replayed.view()
    assert view is not None
    assert view.attainment == 0.0
    for history in (reloaded, given):  # the daemon starts again
        history.add(replace(tick(-10), slo_ms=12.0))
    assert (reloaded.target_ms, given.target_ms) == (12.0, 60.0)


def test_what_is_past_is_judged_by_the_target_that_was_in_force_then() -> None:
    history = History()
    for number in range(8):  # two ticks a second: the target changes after the second one
        history.add(replace(tick(number, p95_ms=20.0), slo_ms=10.0 if number < 4 else 60.0))
    now, then = history.view(), history.past.view(0)
    assert now is not None
    assert headline(now).startswith("p95 20 ms of at most 60 ms, kept in 50 % of")
    assert headline(then).startswith("p95 20 ms of at most 10 ms, kept in 0 % of")
    assert latency_top_ms(then) == 20.0


def test_small_steps_of_a_limit_are_not_listed_and_everything_else_is() -> None:
    history = History(60.0, ("hog",))
    limits = [None, 200, 195, 185, 150, 150, None]
    for number, limit in enumerate(limits):
        history.add(tick(number, limit_mib=limit))
    history.add(tick(7, paused=True))
    history.add(tick(8, paused=True))
    view = history.view()
    assert view is not None
    assert [change.treated for change in view.changes] == [
        "hog paused",
        "hog free",
        "hog limit 150 MiB",
        "hog limit 200 MiB",
    ]
    assert change_line(view.changes[0])[8:] == "  hog paused (partition: room 300)"


def test_slots_are_sorted_and_filtered_and_the_application_stays_first() -> None:
    history = History(60.0)
    history.add(tick(0))
    view = history.view()
    assert view is not None
    hog = view.slots[0]
    slots = tuple(
        replace(hog, name=name, memory_bytes=size)
        for name, size in (("a", 1), ("bb", 3), ("bc", None), ("bd", 2))
    )
    view = replace(view, slots=slots)

    def names(**how: Any) -> list[str]:
        return [row[0] for row in group_rows(view, **how)]

    assert names() == ["app", "a", "bb", "bc", "bd"]
    (by_memory,) = (n for n, (name, _) in enumerate(SORTS) if name == "memory")
    assert names(order=by_memory) == ["app", "bb", "bd", "a", "bc"]
    assert names(order=by_memory, words="B") == ["app", "bb", "bd", "bc"]


def test_bars_are_scaled_to_the_target() -> None:
    history = History(60.0)
    history.add(tick(0, p95_ms=60.0))
    view = history.view()
    assert view is not None
    assert latency_top_ms(view) == 120.0
    assert latency_top_ms(replace(view, target_ms=None)) == 60.0
    full, half, lower = "\u2588", "\u2584", "\u2582"
    assert bars((0.0, 60.0, 120.0, 900.0), 120.0, width=4, height=2) == (
        f"  {full}{full}\n {full}{full}{full}"
    )
    assert bars((60.0, 30.0), 120.0, width=4, height=1) == f"  {half}{lower}"
    assert bars((), 120.0, width=2, height=1) == "  "
    assert bars((1.0,), 0.0, width=1, height=1) == " "


def test_a_long_watch_keeps_a_bounded_history() -> None:
    history = History(60.0)
    for number in range(4 * HISTORY_S):
        history.add(tick(number, paused=number % 2 == 0))
    view = history.view()
    assert view is not None
    assert len(view.p95_history_ms) == HISTORY_S
    assert len(view.changes) == MOST_CHANGES


def test_a_daemon_that_starts_anew_begins_a_new_history() -> None:
    history = History(60.0)
    for number in range(50, 60):
        history.add(tick(number))
    history.add(tick(0))
    view = history.view()
    assert view is not None
    assert len(view.p95_history_ms) == 1


def test_a_group_shows_what_is_done_to_it() -> None:
    history = History(60.0, names=("hog",))
    history.add(tick(0, limit_mib=100, paused=True))
    view = history.view()
    assert view is not None
    app, hog = group_rows(view)
    assert app[0] == "app"
    assert hog == ("hog", "300", "10", "100", "-", "-", "-", "-", "yes (25 %)", "cpu_weight 10")
    assert decider(view) == "partition: room 300"
    assert whole(view).splitlines()[3].startswith("group")
