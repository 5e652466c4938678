"""The answers to interference: another core, and weight from the application's other threads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from thread_examples import period, ref, thread

from stallward.agent.threads import (
    MOST_STEPS,
    WORST_NICE,
    ThreadRef,
    nice_weight,
    remember_own,
    total_weight,
)
from stallward.papers.scheduling import give_back_share, moves, shift_share

BOTH = (0, 1)


def test_of_two_threads_on_one_core_the_one_with_less_to_do_moves() -> None:
    threads = [period(1, cpu=0, run_us=50_000), period(2, cpu=0, run_us=10_000)]
    assert moves(threads, threads, 100_000, {ref(1): BOTH, ref(2): BOTH}) == {ref(2): 1}


def test_no_thread_moves_where_it_would_have_less_room() -> None:
    threads = [
        period(1, cpu=0, run_us=20_000),
        period(2, cpu=0, run_us=10_000),
        period(3, cpu=1, run_us=25_000),
    ]
    assert moves(threads, threads, 100_000, dict.fromkeys(map(ref, (1, 2, 3)), BOTH)) == {}


def test_one_thread_leaves_a_core_in_a_period() -> None:
    threads = [period(tid, cpu=0, run_us=10_000) for tid in (1, 2, 3, 4)]
    allowed = dict.fromkeys(map(ref, (1, 2, 3, 4)), (0, 1, 2, 3))
    assert moves(threads, threads, 100_000, allowed) == {ref(1): 1}


def test_a_thread_stays_on_the_cpus_that_its_application_chose() -> None:
    threads = [period(1, cpu=0, run_us=50_000), period(2, cpu=0, run_us=10_000)]
    assert moves(threads, threads, 100_000, {ref(1): BOTH, ref(2): (0,)}) == {}


def test_a_move_goes_where_there_is_room() -> None:
    """CPU 1 has no low-latency thread, but two others are busy there; CPUs 2 and 3 are idle."""
    low = [period(1, cpu=0, run_us=41_000), period(2, cpu=0, run_us=40_000)]
    busy = [period(tid, cpu=1, run_us=45_000) for tid in (3, 4)]
    allowed = dict.fromkeys(map(ref, (1, 2)), (0, 1, 2, 3))
    assert moves(low, [*low, *busy], 100_000, allowed) == {ref(2): 2}


def test_a_thread_leaves_a_core_that_others_of_its_application_fill() -> None:
    low, other = period(1, cpu=0, run_us=20_000), period(2, cpu=0, run_us=90_000)
    assert moves([low], [low, other], 100_000, {ref(1): BOTH}) == {ref(1): 1}


def test_a_thread_alone_on_its_core_stays() -> None:
    alone = [period(1, cpu=0, run_us=150_000)]
    assert moves(alone, alone, 100_000, {ref(1): BOTH}) == {}


def test_weight_for_the_critical_thread_is_taken_from_another() -> None:
    own = {ref(1): 0, ref(2): 0, ref(3): 0}
    nices = shift_share(own, own, [ref(1)], [ref(2), ref(3)])
    assert nices == {ref(1): -1, ref(2): 1, ref(3): 1}
    assert total_weight(nices.values()) == 1277 + 820 + 820
    assert total_weight(nices.values()) <= total_weight(own.values())


def test_without_other_threads_no_weight_is_given() -> None:
    own = {ref(1): 0, ref(2): 0}
    assert shift_share(own, own, [ref(1)], []) == own


def test_what_is_lacking_no_more_goes_back_step_by_step() -> None:
    own = {ref(1): 0, ref(2): 0, ref(3): 0}
    now = {ref(1): -2, ref(2): 3, ref(3): 1}
    one = give_back_share(own, now)
    assert one[ref(1)] == -1
    assert one[ref(2)] < 3
    assert total_weight(one.values()) <= total_weight(own.values())
    while now != own:
        now, before = give_back_share(own, now), now
        assert now != before


refs = st.integers(1, 6).map(ref)


@given(
    own=st.dictionaries(refs, st.integers(-20, 19), min_size=2),
    lacking=st.lists(refs, unique=True),
    periods=st.integers(1, 12),
    ends=st.none() | refs,
)
def test_the_total_share_never_rises_and_nobody_starves(
    own: dict[ThreadRef, int], lacking: list[ThreadRef], periods: int, ends: ThreadRef | None
) -> None:
    needy = [one for one in lacking if one in own]
    donors = [one for one in own if one not in needy]
    now = dict(own)
    for number in range(periods):
        if number == periods // 2 and len(own) > 1:
            for known in (own, now):  # a thread ends, perhaps one that gave
                known.pop(ends, None)  # type: ignore[arg-type]
            needy, donors = ([one for one in group if one in own] for group in (needy, donors))
        now = shift_share(own, give_back_share(own, now, keep=needy), needy, donors)
        fallen = total_weight(own.values()) - total_weight(now.values())
        best = min(own.values())
        assert 0 <= fallen < max(nice_weight(best) - nice_weight(min(best + 1, 19)), 1)
        for one, nice in now.items():
            assert own[one] - MOST_STEPS <= nice <= min(own[one] + MOST_STEPS, WORST_NICE)


def test_weights_are_the_kernels() -> None:
    assert (nice_weight(-20), nice_weight(0), nice_weight(19)) == (88761, 1024, 15)


def test_what_a_thread_was_given_is_not_its_own() -> None:
    own = remember_own({}, [thread(1, nice=0)], (), 10.0)
    own = remember_own(own, [thread(1, nice=-3)], [ref(1)], 10.1)
    assert own[ref(1)].nice == 0
    own = remember_own(own, [thread(1, nice=-3)], (), 11.0)
    assert own[ref(1)].nice == 0, "it is being put back"
    own = remember_own(own, [thread(1, nice=4)], (), 13.0)
    assert own[ref(1)].nice == 4, "its application changed it since"
    assert remember_own(own, [thread(2)], (), 13.1).keys() == {ref(2)}
