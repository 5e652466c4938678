"""The card of a policy: its training data, its results on the twin and its weaknesses. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from stallward.agent.action_table import LEVELS, ActionTableName
from stallward.agent.controllers.policy_metadata import PolicyMetadata
from stallward.agent.desired import SLOTS
from stallward.agent.observation.encoder import BASIC
from stallward.env.objective import SUFFERED

# ---------- How a policy stands beside ``partition``, which decides without one, on the twins. Pure

Difference = Literal["better", "worse", "not certain"]
_HEADERS: Final = (
    "twin", "policy", "lower bound", "partition", "lower bound", "missed", "allowed", "verdict",
)  # fmt: skip
_START_HEADERS: Final = ("start", "lower bound")
_LISTED: Final = 4
"""How many scenarios a sentence names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A policy and ``partition`` on the same draws of one twin; scores are those of the card."""

    scenario: str
    trained_on: bool
    policy: float
    policy_low: float
    """95 % lower confidence bound of the score."""
    partition: float
    partition_low: float
    missed: float
    """Share of windows that miss the target under the policy."""
    allowed: float
    """The share that is allowed."""
    start: tuple[float, float] | None = None
    """The score and its lower bound of the policy with which the training began."""

    @property
    def difference(self) -> Difference:
        """What the policy is; certain if the lower bound of one is above the score of the other."""
        if self.policy_low > self.partition:
            return "better"
        return "worse" if self.partition_low > self.policy else "not certain"


def standings(facts: Mapping[str, Any]) -> tuple[Standing, ...]:
    """The standing on each twin that both were evaluated on; none without an evaluation.

    Args:
        facts: The facts of the policy's training.
    """
    evaluation = facts.get("evaluation", {})
    both = {name: evaluation.get(name, {}) for name in ("ppo", "partition")}
    started = {
        scenario: (outcome["score"], outcome["score_low"])
        for scenario, outcome in evaluation.get("start", {}).items()
    }
    seen = {*facts.get("twins", ()), *facts.get("start", {}).get("twins", ())}
    return tuple(
        Standing(
            scenario=scenario,
            trained_on=scenario in seen,
            policy=outcome["score"],
            policy_low=outcome["score_low"],
            partition=both["partition"][scenario]["score"],
            partition_low=both["partition"][scenario]["score_low"],
            missed=outcome["window_violated"],
            allowed=facts["allowed"][scenario]["window_violated"],
            start=started.get(scenario),
        )
        for scenario, outcome in both["ppo"].items()
        if scenario in both["partition"]
    )


def standing_headers(compared: Sequence[Standing]) -> tuple[str, ...]:
    """The headers of a table with :func:`standing_rows`."""
    began = any(one.start for one in compared)
    return (*_HEADERS[:3], *(_START_HEADERS if began else ()), *_HEADERS[3:])


def standing_rows(compared: Sequence[Standing]) -> list[tuple[str, ...]]:
    """The rows of a table, twins that were not trained on first."""
    return [
        (
            one.scenario,
            *(f"{score:.3f}" for score in (one.policy, one.policy_low, *(one.start or ()))),
            *(f"{score:.3f}" for score in (one.partition, one.partition_low)),
            *(f"{share:.1%}" for share in (one.missed, one.allowed)),
            one.difference,
        )
        for one in sorted(compared, key=lambda one: one.trained_on)
    ]


def good_for(facts: Mapping[str, Any]) -> list[str]:
    """Sentences that say what a policy is good for, as far as the twins tell.

    Args:
        facts: The facts of the policy's training.
    """
    compared = standings(facts)
    if not compared:
        return ["It was not evaluated beside `partition`, so nothing says what it is good for."]
    better, worse, unclear = (
        [one.scenario for one in compared if one.difference == difference]
        for difference in ("better", "worse", "not certain")
    )
    unseen = sum(not one.trained_on for one in compared)
    said = [
        *_since_the_start(facts),
        f"Twins on which it is better than `partition`: {len(better)}; worse: {len(worse)}; not "
        f"certain: {len(unclear)}. Not trained on: {unseen} of these.",
    ]
    if all(one.policy == one.partition for one in compared):
        said.append(
            "Its scores are those of `partition`."
            if "start" in facts
            else "Its scores are those of `partition`, as which it began: it has learned nothing."
        )
    elif better:
        said.append(f"Try it live beside applications like those of {_named(better)}.")
        if worse:
            said.append(f"Keep `partition` beside those of {_named(worse)}.")
    else:
        said.append("Keep `partition`: these twins show nothing that the policy does better.")
    if over := [one.scenario for one in compared if one.missed > one.allowed]:
        said.append(f"It misses the target more often than is allowed on {_named(over)}.")
    return said


def _since_the_start(facts: Mapping[str, Any]) -> list[str]:
    """Whether a policy is better than the one with which its training began, if there was one."""
    start = facts.get("start", {})
    if "kept" not in start:
        return []
    name = f"`{start['name']}`"
    if start["kept"]:
        return [
            f"Nothing that was trained from {name} was judged better than it, so this is {name} "
            "itself, unchanged."
        ]
    return [
        f"It was trained from {name} and judged better: its merit is {max(facts['merits']):.3f}, "
        f"and that of {name} {start['merit']:.3f}."
    ]


def _named(scenarios: Sequence[str]) -> str:
    """The first few scenarios, and the number of the others."""
    named = [f"`{one}`" for one in scenarios[:_LISTED]]
    if len(scenarios) > _LISTED:
        named.append(f"{len(scenarios) - _LISTED} others")
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))


# ---------- The parts of a policy's card that other programs read: its metadata, and how to use it.

_ENVIRONMENT: Final = "stallward/Twin-v0"
_METRICS: Final = ("score", "score_low", "progress", "window_violated")
"""The figures of the evaluation that the metadata state."""


def metadata(name: str, provenance: Mapping[str, Any]) -> list[str]:
    """The card's metadata, in YAML between two lines of dashes.

    They follow https://huggingface.co/docs/hub/model-cards. The ``model-index`` has the policy's
    results on each twin, as far as it was evaluated.

    Args:
        name: The name of the policy.
        provenance: The facts of its training.
    """
    lines = [
        "---",
        "license: apache-2.0",
        "library_name: stallward",
        "pipeline_tag: reinforcement-learning",
        "tags: [memory-pressure, ppo, onnx, reinforcement-learning]",
    ]
    outcomes = provenance.get("evaluation", {}).get("ppo", {})
    if outcomes:
        lines += ["model-index:", f"- name: {_quoted(name)}", "  results:"]
    for scenario, outcome in outcomes.items():
        metrics = (f"{{type: {key}, value: {outcome[key]:.3f}}}" for key in _METRICS)
        lines += [
            "  - task: {type: reinforcement-learning}",
            f"    dataset: {{type: {_quoted(_ENVIRONMENT)}, name: {_quoted(scenario)}}}",
            f"    metrics: [{', '.join(metrics)}]",
        ]
    return [*lines, "---"]


def usage(name: str, policy: PolicyMetadata) -> list[str]:
    """The section that says how to run the policy, in an environment and on a node.

    Args:
        name: The name of the policy, and of its file.
        policy: The metadata of its file.
    """
    settings = [f'"ticks_per_action": {policy.ticks_per_action}']
    if policy.table is not LEVELS:
        settings += [
            f'"action_table": {_quoted(policy.table.name)}',
            '"partition": json.loads(facts["stallward.partition"])',
        ]
    return [
        "## Use",
        "",
        "The graph takes observations as the environments give them, and returns actions.",
        "",
        "```python",
        "import json",
        "",
        "import gymnasium",
        "import onnxruntime",
        "",
        f"session = onnxruntime.InferenceSession({_quoted(f'{name}.onnx')})",
        "facts = session.get_modelmeta().custom_metadata_map",
        "env = gymnasium.make(",
        f'    "stallward.env.gym:{_ENVIRONMENT}",',
        *([] if policy.features is BASIC else [f'    features="{policy.features.name}",']),
        "    settings={",
        *(f"        {setting}," for setting in settings),
        "    },",
        ")",
        "observation, _ = env.reset(seed=1)",
        "truncated = False",
        "while not truncated:",
        '    (actions,) = session.run(["action"], {"observation": observation[None]})',
        "    observation, reward, _, truncated, info = env.step(actions[0])",
        "```",
        "",
        "`facts` has everything that is known of the policy; its training, with every figure of",
        'every arm and the recordings behind each twin, is `json.loads(facts["stallward.provenance"])`.',
        "",
        f"On a node: `stallward ctl push {name}.onnx`.",
        "",
    ]


def _quoted(words: str) -> str:
    """A string of YAML, and of Python."""
    return json.dumps(words, ensure_ascii=False)


_COST_NAMES: Final = {
    "window_violated": "windows that miss the target",
    "excess": "mean latency beyond that with ample memory",
    "slow": "slow requests",
}
_COLOURS: Final = "#d1495b, #2e86ab, #3a9d5d, #b8860b, #7a5195, #ef8354"
_BASELINES: Final = {
    "static": "the best static setting for all",
    "rule": "the tuned rule",
    "pi": "tuned PI control",
}
"""The arms besides `partition` that a policy should beat, with their names on the card."""
_SHOWN_POINTS: Final = 20
"""How many points of a training curve the card shows."""
_DECIDES: Final[dict[ActionTableName, tuple[str, ...]]] = {
    "levels": (
        "Decides which background groups to pause, how much memory to leave them and which",
        "tuning profile to use, so that one latency-critical application stays in its target.",
    ),
    "set-points": (
        "Decides how much memory is kept for one latency-critical application, which share of",
        "the rest each background group gets and the tuning; `partition` divides by it at every",
        "tick, so that the application stays in its target.",
    ),
}


def card(name: str, policy: PolicyMetadata, size_bytes: int) -> str:
    """The policy's card, in Markdown.

    Args:
        name: The name of the policy.
        policy: The metadata of its file.
        size_bytes: The size of its file.
    """
    facts = policy.provenance
    lines = [
        *metadata(name, facts),
        f"# Policy `{name}`",
        "",
        *_DECIDES[policy.table.name],
        f"A decision holds for {policy.ticks_per_action} ticks of 0.1 s.",
        "",
        f"- File: {size_bytes} bytes, SHA-256 `{policy.sha256}`",
        f"- Schema: `{policy.schema_hash}`"
        f" ({policy.features.size} features, action table `{policy.table.name}`)",
        f"- Out of distribution: more than {policy.ood_limit:.0%} of the features outside the range",
        "  seen in training; the daemon's default rule then decides.",
        "",
        "## What it is good for",
        "",
        *good_for(facts),
        "",
        "Scores are compared, and one is certainly better if its lower bound is above the other.",
        "",
        *usage(name, policy),
        *_data(facts),
        *_results(facts),
        *_weaknesses(facts),
        *_seeds(facts),
    ]
    return "\n".join(lines)


def _data(facts: Mapping[str, Any]) -> list[str]:
    trained, validation = sorted(facts.get("twins", ())), facts.get("judged_on", ())
    if not trained:
        return []
    both = (
        f"half by the twins of {_listed(validation)}, which are not trained on, and half by these"
    )
    chosen_by = "by the same twins" if set(validation) == set(trained) else both
    return [
        "## Data",
        "",
        f"- Trained on the twins of {_listed(trained)}.",
        *_began(facts.get("start")),
        *_groups(facts.get("groups", {})),
        f"- The seed was chosen {chosen_by}.",
        "- It has seen no other scenario.",
        "",
    ]


def _began(start: Mapping[str, Any] | None) -> list[str]:
    """The policy with which the training began, if there was one."""
    if not start:
        return []
    named = f"`{start['name']}` (SHA-256 `{start['sha256']}`)"
    if start.get("kept"):
        return [f"- It is {named}, and was to be trained on other twins."]
    return [
        f"- The training began with the weights of {named},",
        f"  which was trained on the twins of {_listed(start['twins']) or 'no known scenario'}.",
    ]


def _groups(groups: Mapping[str, int]) -> list[str]:
    """How many of the training scenarios have each number of background groups."""
    counts = sorted(Counter(groups.values()).items())
    if not counts:
        return []
    numbers = ", ".join(f"{scenarios} with {slots}" for slots, scenarios in counts)
    return [
        f"- Of the {len(groups)} scenarios, synthetic ones among them, by background groups:",
        f"  {numbers}; it decides for 1 to {SLOTS}.",
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _results(facts: Mapping[str, Any]) -> list[str]:
    """The table of outcomes, with a row for every scenario."""
    evaluation = facts.get("evaluation")
    if not evaluation:
        return ["## Results on the twin", "", "Not evaluated.", ""]
    others = [arm for arm in evaluation if arm != "ppo"]
    columns = ("policy", "lower bound", *others, "progress", "missed windows", "allowed")
    rows = [
        "## Results on the twin",
        "",
        "| scenario | " + " | ".join(columns) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for scenario, outcome in evaluation["ppo"].items():
        scores = [outcome["score"], outcome["score_low"]]
        scores += [evaluation[arm][scenario]["score"] for arm in others]
        shares = [outcome["progress"], outcome["window_violated"]]
        shares += [facts["allowed"][scenario]["window_violated"]]
        cells = [*(f"{score:.3f}" for score in scores), *(f"{share:.1%}" for share in shares)]
        rows.append(f"| `{scenario}` | " + " | ".join(cells) + " |")
    return [
        *rows,
        "",
        "The first columns are scores: background progress less penalties for exceeding what is",
        "allowed, with the policy's 95 % lower confidence bound over draws. The last three are",
        "the policy's background progress, its share of windows that miss the target, and the",
        "share that is allowed. `static` is the best static setting for all training scenarios;",
        "`rule`, `pi` and `partition` have the thresholds that they were shipped with or given.",
        *(["`start` is the policy with which the training began."] if "start" in others else []),
        "All arms met the same draws, which were not used to choose any of them.",
        "",
    ]


def _weaknesses(facts: Mapping[str, Any]) -> list[str]:
    """The scenarios in which the policy exceeds what is allowed or does not beat a baseline."""
    evaluation = facts.get("evaluation", {})
    outcomes = evaluation.get("ppo", {})
    weaknesses = []
    for scenario, outcome in outcomes.items():
        allowed = facts["allowed"][scenario]
        over = [
            f"{_COST_NAMES[cost]} {outcome[cost]:.2%} (allowed {allowed[cost]:.2%})"
            for cost in SUFFERED
            if outcome[cost] > allowed[cost]
        ]
        if over:
            weaknesses.append(f"- `{scenario}`: {', '.join(over)}.")
    for arm, baseline in _BASELINES.items():
        others = evaluation.get(arm, {})
        behind = [
            scenario
            for scenario, outcome in outcomes.items()
            if scenario in others and outcome["score"] <= others[scenario]["score"]
        ]
        if behind:
            weaknesses.append(f"- No better than {baseline}: {_listed(behind)}.")
    return [
        "## Known weaknesses",
        "",
        *weaknesses,
        "- All of this was measured on the twin, which differs from a node. On other applications",
        "  and machines only a live comparison tells how the policy does. The daemon's guard",
        "  always holds.",
        "",
    ]


def _seeds(facts: Mapping[str, Any]) -> list[str]:
    """The table of seeds, and the training curve of each."""
    seeds, curves = facts.get("seeds"), facts.get("curves_by_seed")
    if not seeds or not curves:
        return []
    candidates = list(zip(seeds, facts["merits"], facts["scores_low"], strict=True))
    start, first = facts.get("start", {}), "`partition`"
    if start:  # it is kept if a seed is just as good
        first = f"`{start['name']}`"
        candidates.insert(0, ("start", start["merit"], start["score_low"]))
    highest = max(merit for _, merit, _ in candidates)
    kept = next(name for name, merit, _ in candidates if merit == highest)
    rows = [
        f"| {name}{' (kept)' if name == kept else ''} | {merit:.3f} | {low:.3f} |"
        for name, merit, low in candidates
    ]
    millions = max(facts.get("steps_by_seed") or [facts["steps"]]) / 1e6
    lines = [f"    line [{', '.join(_thinned(curve))}]" for curve in curves if curve]
    return [
        "## Seeds",
        "",
        "| seed | merit | lowest `score_low` of the scenarios judged on |",
        "| --- | ---: | ---: |",
        *rows,
        "",
        "A seed's merit is the mean of that bound and of the mean bound over the scenarios trained",
        "on. The chart shows each seed's mean score on what it is trained on, without exploring,",
        f"from the first evaluation on; before training the policy is {first}.",
        "",
        "```mermaid",
        f'%%{{init: {{"themeVariables": {{"xyChart": {{"plotColorPalette": "{_COLOURS}"}}}}}}}}%%',
        "xychart-beta",
        f'    x-axis "million decisions" 0 --> {millions:.3g}',
        '    y-axis "score"',
        *lines,
        "```",
        "",
    ]


def _thinned(curve: Sequence[float]) -> list[str]:
    """The last value of each of equal parts of a curve, as the chart has them."""
    step = max(1, math.ceil(len(curve) / _SHOWN_POINTS))
    return [f"{value:.3g}" for value in curve[step - 1 :: step]]
