"""The pieces of a trace, and which of them are kept."""

from __future__ import annotations

import pytest

from stallward.env.recording.pieces import Configuration, Piece, choose, cut
from stallward.proto.v1 import stallward_pb2 as pb

CONFIGURATION = Configuration(groups=("a",), slo_ms=60.0, work=())


def _piece(number: int, stall_us: int = 0, controller: str = "rule") -> Piece:
    start_s = 100.0 * number
    return Piece(
        configuration=CONFIGURATION,
        controller=controller,
        start_s=start_s,
        end_s=start_s + 90.0,
        stall_us=stall_us,
        alone=False,
    )


def test_half_of_the_pieces_are_those_that_stalled_most_and_half_are_spread() -> None:
    stalls = {3: 50, 4: 90, 50: 70}
    pieces = [_piece(k, stalls.get(k, 0)) for k in range(100)]
    chosen = [round(one.start_s / 100.0) for one in choose(pieces, 6)]
    assert len(chosen) == 6
    assert set(stalls) <= set(chosen)
    rest = [k for k in chosen if k not in stalls]
    assert rest[0] < 33 <= rest[1] < 66 <= rest[2]
    assert choose(pieces, 1)[0].start_s == 400.0
    assert len(choose(pieces, 1000)) == 100


def test_each_controller_has_its_own() -> None:
    pieces = [_piece(k, controller="none" if k % 10 == 0 else "rule") for k in range(100)]
    chosen = choose(pieces, 4)
    assert [one.controller for one in chosen].count("none") == 4
    assert [one.start_s for one in chosen] == sorted(one.start_s for one in chosen)


def test_a_fallback_is_a_part_of_what_a_policy_does() -> None:
    def tick(k: int) -> pb.TickRecord:
        fell = 10 <= k < 20
        record = pb.TickRecord(time_s=float(k), wall_time_s=1.7e9 + k, fallback=fell, slo_ms=60.0)
        record.decision.controller = "partition" if fell else "onnx"
        record.sample.protected.psi.memory_some_us = 1000 * k
        return record

    (piece,) = cut(map(tick, range(100)), 600.0).pieces
    assert (piece.controller, piece.ticks, piece.stall_us) == ("onnx", 100, 99_000)


def _day_of_ticks(first_s: int, last_s: int) -> list[pb.TickRecord]:
    """A tick a second, by a monotonic clock that began at midnight."""
    return [
        pb.TickRecord(time_s=float(k), wall_time_s=86_400.0 * 20_000 + k)
        for k in range(first_s, last_s)
    ]


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_by_the_clock_a_day_is_cut_the_same_whatever_its_trace_begins_and_ends_with() -> None:
    early = cut(_day_of_ticks(130, 2500), 600.0, by_clock=True).pieces
    late = cut(_day_of_ticks(700, 90_000), 600.0, by_clock=True).pieces

    def spans(pieces: list[Piece]) -> list[tuple[float, float]]:
        return [(one.start_s, one.end_s) for one in pieces]

    assert spans(early)[2:4] == spans(late)[1:3] == [(1200.0, 1799.0), (1800.0, 2399.0)]
    assert (86_400.0, 86_999.0) in spans(late)
    assert {one.day for one in late if one.start_s < 86_400.0} == {early[0].day}
    assert cut(_day_of_ticks(130, 2500), 600.0).pieces[0].end_s == 729.0
