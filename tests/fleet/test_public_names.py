"""What was public in the client's package before many nodes had one of their own stays there."""

from __future__ import annotations

import sys

import pytest

import stallward.fleet
from stallward.actuator import client


@pytest.mark.parametrize("name", stallward.fleet.__all__)
def test_the_client_has_every_name_of_the_fleet(name: str) -> None:
    assert getattr(client, name) is getattr(stallward.fleet, name)
    assert name not in client.__all__, "all of them are there without the fleet"


def test_another_name_is_none() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Fleets'"):
        from stallward.actuator.client import Fleets  # noqa: F401, PLC0415


def test_without_the_package_a_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stallward.fleet", None)
    with pytest.raises(ModuleNotFoundError, match=r"Fleet is in .* `pip install 'stallward\[fl"):
        from stallward.actuator.client import Fleet  # noqa: F401, PLC0415
