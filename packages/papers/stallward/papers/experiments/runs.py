"""The runs of an experiment: the folder that keeps them, which there are, and making the missing ones."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.errors import PlanError
from stallward.evaluation.results.serialise import RESUME_OR_RENAME, claim, load_if_there, save
from stallward.training.progress import Report

T = TypeVar("T")
RESULT_FILE: Final = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRequest:
    """What the user asks of every experiment."""

    out: Path
    """The folder of the experiment, new or to be resumed."""
    repeats: int = 3
    """How often every setting runs."""
    minutes: float = 600.0
    """After how long no further run is begun."""
    seed: int = 1
    """Seeds the order of the runs, and what is random in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """What the results of all experiments say."""

    schema: int = 1
    node: NodeInfo
    seed: int
    done_runs: int
    planned_runs: int
    stolen_share_worst: float
    """Share of steal time in the worst run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlan:
    """What runs of a folder have in common."""

    experiment: str
    """The name of the experiment."""
    settings_sha256: str
    """The digest of everything that a run depends on beside its key."""
    seed: int

    @classmethod
    def of(cls, experiment: str, settings: object, seed: int) -> ExperimentPlan:
        """The plan of runs that depend on ``settings``, by their ``repr``."""
        digest = hashlib.sha256(repr(settings).encode()).hexdigest()
        return cls(experiment=experiment, settings_sha256=digest, seed=seed)


class RunStore:
    """The finished runs of one experiment, each in a file of its own.

    Args:
        root: The folder; it is made if it does not exist.
        plan: What the runs have in common.

    Raises:
        PlanError: If the folder holds another experiment, or anything else.
    """

    def __init__(self, root: Path, plan: ExperimentPlan) -> None:
        self.root = root
        self._runs = root / "runs"
        existing = claim(root, plan, "experiment")
        if existing != plan:
            raise PlanError(
                f"{root} holds the experiment {existing.experiment!r} with other settings.",
                next_step=RESUME_OR_RENAME,
            )
        self._runs.mkdir(exist_ok=True)

    def _path(self, key: str) -> Path:
        return self._runs / f"{key}.json"

    def get(self, kind: type[T], key: str) -> T | None:
        """A finished run; ``None`` if there is none, or its file was cut off."""
        return load_if_there(kind, self._path(key))

    def put(self, key: str, run: object) -> None:
        """Keep a finished run."""
        save(self._path(key), run)


# ---------- The runs of an experiment that makes each of its settings several times


class Named(Protocol):
    """A setting of an experiment."""

    @property
    def name(self) -> str:
        """The name of its runs."""
        ...


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(Generic[N]):
    """One run."""

    setting: N
    repeat: int
    """The number of the repeat, from 1."""

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.setting.name}-{self.repeat}"

    @property
    def words(self) -> str:
        """What it is, for somebody who waits."""
        return f"{self.setting.name}, repeat {self.repeat}"


def plan_repeats(settings: Sequence[N], repeats: int, seed: int) -> list[Repeat[N]]:
    """All runs, one repeat of everything after the other.

    Within a repeat the order is drawn, so that slow drifts of the machine affect all alike.

    Args:
        settings: What to run.
        repeats: How often each setting runs.
        seed: Seeds the order.
    """
    steps: list[Repeat[N]] = []
    for repeat in range(1, repeats + 1):
        rng = np.random.default_rng([seed, repeat])
        order: Sequence[int] = rng.permutation(len(settings)).tolist()
        steps += [Repeat(setting=settings[i], repeat=repeat) for i in order]
    return steps


# ---------- Making the runs that are missing, as far as there is time


class Planned(Protocol):
    """One planned run."""

    @property
    def key(self) -> str:
        """The name of its file."""
        ...


S = TypeVar("S", bound=Planned)
R = TypeVar("R")


def make_missing(
    store: RunStore,
    kind: type[T],
    steps: Sequence[S],
    opener: Callable[[], AbstractContextManager[R]],
    make: Callable[[R, S], T],
    *,
    minutes: float,
    report: Report,
    describe: Callable[[S], str],
    prepare: Callable[[R, Sequence[S]], None] = lambda _session, _missing: None,
) -> None:
    """Make one run after the other until none is missing, or the time is over.

    Args:
        store: Keeps the runs.
        kind: Their class.
        steps: All runs, in their order.
        opener: Opens what runs the programs.
        make: Makes one.
        minutes: After how long no further run is begun.
        report: Told about progress.
        describe: What one of them is, in a few words.
        prepare: Makes what the missing ones need.
    """
    missing = [step for step in steps if store.get(kind, step.key) is None]
    if not missing or minutes <= 0.0:
        return
    report("preparing programs", 0.0)
    with opener() as session:
        prepare(session, missing)
        began_s = time.monotonic()
        for number, step in enumerate(missing):
            if time.monotonic() - began_s >= 60.0 * minutes:
                return
            report(describe(step), number / len(missing))
            store.put(step.key, make(session, step))
