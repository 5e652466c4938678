"""What the doctor prints of its findings."""

from __future__ import annotations

from stallward.actuator.cli.doctor import COLUMNS, finding_lines
from stallward.actuator.doctor.finding import Finding

SWAP = Finding(
    area="node", name="swap", state="degraded", why="none is on", next_step="Add a swap file."
)
PAUSE = Finding(area="lever", name="pause:sort", state="works")
LEVERS = tuple(
    Finding(area="lever", name=name, state="missing", why=f"{name}: v1 has none")
    for name in ("swap_max:sort", "io_max:sort", "io_max:train")
)


def test_what_to_do_is_below_what_it_is_about() -> None:
    assert finding_lines([SWAP, PAUSE]) == [
        "degraded  swap: none is on",
        "          -> Add a swap file.",
    ]
    assert "works     pause:sort" in finding_lines([PAUSE], everything=True)


def test_levers_that_are_not_here_are_counted_and_no_failure() -> None:
    assert finding_lines(LEVERS) == ["not here  3 levers (swap_max, io_max); --all says why"]
    assert finding_lines(LEVERS[:1]) == ["not here  swap_max:sort: v1 has none"]
    assert len(finding_lines(LEVERS, everything=True)) == 3


def test_no_line_is_wider_than_100_columns() -> None:
    long = Finding(
        area="signal", name="PSI", state="missing", why="word " * 90, next_step="step " * 90
    )
    lines = finding_lines([long])
    assert len(lines) > 9
    assert max(map(len, lines)) <= COLUMNS
