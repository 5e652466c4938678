"""Search of a rule's thresholds on the twin, with seeds, decisions, score and choice as for PPO.

The search is CMA-ES in the unit cube of the thresholds. All candidates of a generation run on the
same nodes (``rollout.evaluate`` with one seed), and each generation on new ones. The best
candidates and the final mean of the search then run on fresh nodes, and the one with the best
lower confidence bound wins. The budget of a search is a number of decisions, including this
evaluation. Between the results of several searches and the default thresholds, the choice is made
as between policies (``stallward.training.selection.selection``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import as_values, from_unit, make_thresholds, to_unit
from stallward.agent.errors import SchemaError, ThresholdError
from stallward.agent.schema.json_file import read_json_file
from stallward.agent.schema.read import read
from stallward.env.twin.inputs.exogenous import scenario_to_json
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.errors import TrainingError
from stallward.training.parallel.executor import Executor, Job, time_for_each
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.parallel.versions import versions_here
from stallward.training.progress import Report
from stallward.training.selection.rollout import Outcome, evaluate, rollout_steps
from stallward.training.selection.selection import make_constraints, make_selection
from stallward.training.synthetic_scenarios import make_synthetic_scenarios
from stallward.training.tuning.settings import Tunable, TuneResult, TuneSettings, find_tunable

# ---------- Finished searches, each in a file of its own, so that an interrupted command goes on

_OF_THE_CHOICE: Final = ("seeds", "judged_episodes")
"""Settings of the choice between searches, in which no search has a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of one search."""

    seed: int
    """The seed of the search."""
    thresholds: Any
    """The best thresholds, as the rule's dataclass."""
    outcome: Outcome
    """Their outcome on fresh nodes of the twins of the search."""
    steps: int
    """Decisions spent."""
    generations: int
    """Generations of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchFile:
    """The file of a finished search."""

    determined_by: str
    """A digest of everything that determines the search, except its seed."""
    seed: int
    thresholds: Mapping[str, float]
    outcome: Outcome
    steps: int
    generations: int


class KeptSearches:
    """The finished searches of one rule, with the same twins and settings and the same code.

    Args:
        folder: Where they are, beside those with other settings; with ``None`` none is kept.
        rule: The rule.
        twins: The twins to search on.
        settings: The settings of the searches.
    """

    def __init__(
        self,
        folder: Path | None,
        rule: Tunable,
        twins: Sequence[FittedTwin],
        settings: TuneSettings,
    ) -> None:
        self._folder, self._rule = folder, rule
        self._determined_by = _sha256(rule.name, twins, settings)

    def load(self, seed: int) -> SearchResult | None:
        """The search of a seed, if it is finished; one that cannot be read is none."""
        if self._folder is None:
            return None
        path = self._place(self._folder, seed)
        try:
            file = read(_SearchFile, read_json_file(path))
            thresholds = make_thresholds(self._rule.thresholds, file.thresholds, str(path))
        except (OSError, ValueError, SchemaError, ThresholdError):
            return None
        if (file.determined_by, file.seed) != (self._determined_by, seed):
            return None
        return SearchResult(
            seed=seed,
            thresholds=thresholds,
            outcome=file.outcome,
            steps=file.steps,
            generations=file.generations,
        )

    def save(self, result: SearchResult) -> None:
        """Write a finished search, whole or not at all."""
        if self._folder is None:
            return
        path = self._place(self._folder, result.seed)
        content = _SearchFile(
            determined_by=self._determined_by,
            seed=result.seed,
            thresholds=as_values(result.thresholds),
            outcome=result.outcome,
            steps=result.steps,
            generations=result.generations,
        )
        building = path.with_name(f".{path.name}.{os.getpid()}.partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            building.write_text(json.dumps(asdict(content), indent=1) + "\n", encoding="utf-8")
            building.replace(path)
        finally:
            with contextlib.suppress(OSError):
                building.unlink()

    def _place(self, folder: Path, seed: int) -> Path:
        return folder / f"{self._rule.name}-seed-{seed}-{self._determined_by[:16]}.json"


def _sha256(rule: str, twins: Sequence[FittedTwin], settings: TuneSettings) -> str:
    """A digest of everything that determines a search, except its own seed."""
    described = {
        "rule": rule,
        "settings": {k: v for k, v in asdict(settings).items() if k not in _OF_THE_CHOICE},
        "twins": [
            [scenario_to_json(twin.scenario), [asdict(draw) for draw in twin.draws], twin.weights]
            for twin in twins
        ],
        "versions": versions_here(),
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


_FRESH_SEED: Final = 10_000
"""Added to the seed, for nodes that the search has not seen."""


def tune(
    name: str,
    twins: Sequence[FittedTwin],
    settings: TuneSettings | None = None,
    report: Report | None = None,
    *,
    judged_on: Sequence[FittedTwin] = (),
    folder: Path | None = None,
    executor: Executor = LOCAL,
) -> TuneResult:
    """Search the thresholds of the rule ``name``.

    Args:
        name: The name of the rule.
        twins: The twins to search on.
        settings: The settings of the search.
        report: Called with the progress.
        judged_on: Validation twins, which decide which search is kept; by default ``twins``.
        folder: Where each search is kept as soon as it is finished. Those that are already there,
            with the same twins, settings and code, are not made again.
        executor: Runs the searches.

    Raises:
        TrainingError: If there is no such rule, or no twin.
    """
    settings, rule = settings or TuneSettings(), find_tunable(name)
    report = report or (lambda _message, _share: None)
    if not twins:
        raise TrainingError("There is no twin to tune on.", next_step="Run `stallward fit`.")
    seeds = range(settings.seed, settings.seed + settings.seeds)
    kept = KeptSearches(folder, rule, twins, settings)
    found = {seed: search for seed in seeds if (search := kept.load(seed)) is not None}
    missing = [seed for seed in seeds if seed not in found]
    each_s = time_for_each(settings.max_seconds, len(missing), executor)
    search_of = partial(_search, name, twins, settings)

    def keep(_number: int, search: SearchResult) -> None:
        kept.save(search)
        found[search.seed] = search

    executor.run(
        [Job(f"the search of seed {seed}", partial(search_of, seed, each_s)) for seed in missing],
        lambda message, share: report(message, 0.95 * share),
        keep=keep,
    )
    searches = [found[seed] for seed in seeds]
    report("evaluating", 0.95)
    selection = make_selection(
        twins,
        judged_on,
        settings.settings,
        slack=settings.slack,
        episodes=settings.judged_episodes,
        seed=settings.seed,
    )
    candidates = [rule.thresholds(), *(search.thresholds for search in searches)]
    arms = [rule.arm(thresholds) for thresholds in candidates]
    merits = [selection.merit(arm) for arm in arms]
    best = int(np.argmax([merit.value for merit in merits]))
    fresh = selection.on_fresh_nodes()
    outcomes = fresh.outcomes(arms[best])
    steps = sum(search.steps for search in searches)
    report("done", 1.0)
    return TuneResult(
        thresholds=candidates[best],
        outcomes=outcomes,
        default=fresh.outcomes(arms[0]),
        steps=steps,
        provenance={
            "search": f"CMA-ES (cmaes {version('cmaes')})",
            "stallward": version("stallward"),
            "seeds": list(seeds),
            "kept": "defaults" if best == 0 else f"seed {searches[best - 1].seed}",
            "merits_by_seed": [round(merit.value, 4) for merit in merits[1:]],
            "default_merit": round(merits[0].value, 4),
            "scores_low_by_seed": [round(merit.low, 4) for merit in merits[1:]],
            "judged_on": selection.judged_on(),
            "scores_low": [f"{name} {o.score_low:.4f}" for name, o in outcomes.items()],
            "scores_by_seed_where_searched": [
                round(search.outcome.score, 4) for search in searches
            ],
            "decisions": steps,
            "generations": [search.generations for search in searches],
            "episodes": settings.episodes,
            **{f"slack_{key}": value for key, value in asdict(settings.slack).items()},
            "twins": [twin.scenario.name for twin in twins],
            "composed": settings.composing.per_twin * len(twins),
            "recordings_sha256": [
                str(twin.provenance.get("recordings_sha256", "")) for twin in twins
            ],
            "start": [f"{key} {value:g}" for key, value in as_values(candidates[0]).items()],
        },
    )


def _search(
    name: str,
    twins: Sequence[FittedTwin],
    settings: TuneSettings,
    seed: int,
    max_seconds: float,
    report: Report,
) -> SearchResult:
    """Run one search in a worker process."""
    return _Search(find_tunable(name), twins, settings, seed, max_seconds, report).run()


class _Search:
    """One search of one rule's thresholds."""

    def __init__(
        self,
        rule: Tunable,
        twins: Sequence[FittedTwin],
        settings: TuneSettings,
        seed: int,
        max_seconds: float,
        report: Report,
    ) -> None:
        self._rule, self._settings, self._report = rule, settings, report
        self._seed, self._max_seconds = seed, max_seconds
        synthetic = make_synthetic_scenarios(
            twins, settings.composing, settings.settings, seed=settings.seed
        )
        self._twins = (*twins, *synthetic)
        self._constraints, _ = make_constraints(
            self._twins, settings.settings, settings.slack, seed=settings.seed
        )
        self._default = rule.thresholds()
        self._default_unit = to_unit(self._default)
        mean = self._default_unit[rule.searched]
        self._cma = CMA(
            mean=np.clip(mean, 0.05, 0.95),
            sigma=settings.sigma,
            bounds=np.tile([0.0, 1.0], (mean.size, 1)),
            seed=seed,
        )
        self._generation_best: list[tuple[float, NDArray[np.float64]]] = []
        self._steps = 0
        self._curve: list[float] = []

    def run(self) -> SearchResult:
        """Search until the decisions or the time are spent, then choose on fresh nodes."""
        settings = self._settings
        began_s = time.monotonic()
        simulated = self._rule.arm(self._default).on(settings.settings)
        final_steps = rollout_steps(settings.evaluation_seconds, simulated)
        final_steps *= (settings.finalists + 2) * settings.evaluation_episodes
        budget = settings.total_steps - final_steps
        generation_steps = rollout_steps(settings.seconds, simulated) * settings.episodes
        generation_steps *= self._cma.population_size
        while True:
            spent = (time.monotonic() - began_s) / self._max_seconds
            done = max(spent, (self._steps + generation_steps) / max(budget, 1))
            best = f": score {self._curve[-1]:.3f}" if self._curve else ""
            message = f"{self._rule.name}, seed {self._seed}, generation {len(self._curve)}{best}"
            self._report(message, min(done, 1.0))
            if self._curve and done >= 1.0:
                break
            self._generation()
        return self._choose()

    def _generation(self) -> None:
        units = [self._cma.ask() for _ in range(self._cma.population_size)]
        seed = 1000 * self._seed + len(self._curve)
        length_s, nodes = self._settings.seconds, self._settings.episodes
        scores = [self._evaluate(self._thresholds(u), nodes, seed, length_s).score for u in units]
        self._cma.tell([(u, -score) for u, score in zip(units, scores, strict=True)])
        best = int(np.argmax(scores))
        self._curve.append(scores[best])
        self._generation_best.append((scores[best], units[best]))

    def _thresholds(self, unit: NDArray[np.float64]) -> Any:
        whole = self._default_unit.copy()
        whole[self._rule.searched] = unit
        return from_unit(self._rule.thresholds, whole)

    def _evaluate(self, thresholds: Any, episodes: int, seed: int, seconds: float) -> Outcome:
        arm = self._rule.arm(thresholds)
        settings = arm.on(self._settings.settings)
        self._steps += rollout_steps(seconds, settings) * episodes
        return evaluate(
            arm.make(episodes),
            self._twins,
            settings,
            constraints=self._constraints,
            episodes=episodes,
            seed=seed,
            seconds=seconds,
        )

    def _choose(self) -> SearchResult:
        """Choose between the best of late generations, the final mean and the defaults."""
        settings = self._settings
        late = self._generation_best[len(self._generation_best) // 2 :]
        late.sort(key=lambda item: item[0], reverse=True)
        finalists = [self._thresholds(self._cma.mean)]
        finalists += [self._thresholds(unit) for _, unit in late[: settings.finalists]]
        candidates = [self._default, *finalists]
        fresh_seed = _FRESH_SEED + self._seed
        nodes, length_s = settings.evaluation_episodes, settings.evaluation_seconds
        outcomes = [
            self._evaluate(thresholds, nodes, fresh_seed, length_s) for thresholds in candidates
        ]
        best = int(np.argmax([outcome.score_low for outcome in outcomes]))
        return SearchResult(
            seed=self._seed,
            thresholds=candidates[best],
            outcome=outcomes[best],
            steps=self._steps,
            generations=len(self._curve),
        )
