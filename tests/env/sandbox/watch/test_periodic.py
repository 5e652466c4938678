"""A watch looks again and again, and only while its context lasts."""

from __future__ import annotations

from threading import Event

import pytest

from stallward.env.sandbox.watch import PeriodicWatch


class Counting(PeriodicWatch):
    def __init__(self) -> None:
        super().__init__("counting", 0.001)
        self.looks = 0
        self.thrice = Event()

    def _look(self) -> None:
        self.looks += 1
        if self.looks >= 3:
            self.thrice.set()


def test_it_looks_again_and_again_until_its_context_ends() -> None:
    watch = Counting()
    with watch:
        assert watch.thrice.wait(60.0), "it does not look"
    looks = watch.looks
    assert not Event().wait(0.05)
    assert watch.looks == looks, "it goes on after its end"


def test_an_error_of_what_it_watches_ends_it_too() -> None:
    watch = Counting()
    with pytest.raises(KeyError), watch:
        raise KeyError
    looks = watch.looks
    assert not Event().wait(0.05)
    assert watch.looks == looks
