"""Errors reach another process with their cause, next step and attributes."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import pytest

from stallward.actuator.errors import KernelFileError
from stallward.agent.errors import StallwardError

for package in (
    "actuator",
    "benchmarks",
    "env",
    "evaluation",
    "fleet",
    "kubernetes",
    "lens",
    "models",
    "papers",
    "research",
    "training",
):
    importlib.import_module(f"stallward.{package}.errors")


def _kinds(kind: type[StallwardError]) -> list[type[StallwardError]]:
    return [kind, *(k for sub in kind.__subclasses__() for k in _kinds(sub))]


@pytest.mark.parametrize("kind", _kinds(StallwardError), ids=lambda kind: kind.__name__)
def test_every_error_can_be_pickled_without_loss(kind: type[StallwardError]) -> None:
    error = (
        kind(Path("/proc/x"), "cut short")
        if issubclass(kind, KernelFileError)
        else kind("It broke.", next_step="Mend it.")
    )
    unpickled = pickle.loads(pickle.dumps(error))
    assert type(unpickled) is kind
    assert str(unpickled) == str(error)
    assert vars(unpickled) == vars(error)
