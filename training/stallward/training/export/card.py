"""The card of a policy: its training data, its results on the twin and its weaknesses. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stallward.agent.action_table import LEVELS, ActionTableName
from stallward.agent.control_law.thresholds import as_values
from stallward.agent.desired import SLOTS
from stallward.agent.observation.encoder import BASIC, schema_hash
from stallward.env.objective import SUFFERED
from stallward.env.scenario.file import find_scenarios
from stallward.training.network.arrays import TrainedPolicy

# ---------- The parts of a policy's card that other programs read: its metadata, and how to use it.

_ENVIRONMENT: Final = "stallward/Twin-v0"
_METRICS: Final = {
    "score": "score (background progress less penalties)",
    "score_low": "95 % lower confidence bound of the score",
    "progress": "background progress, relative to full speed",
    "window_violated": "share of windows that miss the target",
}
"""The figures of the evaluation that the metadata state, and what they are."""


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
        lines += [
            "  - task: {type: reinforcement-learning}",
            f"    dataset: {{type: {_quoted(_ENVIRONMENT)}, name: {_quoted(scenario)}}}",
            "    metrics:",
        ]
        lines += [
            f"    - {{type: {key}, value: {outcome[key]:.3f}, name: {_quoted(words)}}}"
            for key, words in _METRICS.items()
        ]
    return [*lines, "---"]


def usage(name: str, policy: TrainedPolicy) -> list[str]:
    """The section that says how to run the policy, in an environment and on a node.

    Args:
        name: The name of the policy, and of its file.
        policy: The policy.
    """
    settings: dict[str, Any] = {"ticks_per_action": policy.ticks_per_action}
    if policy.table is not LEVELS:
        settings["action_table"] = policy.table.name
        settings["partition"] = as_values(policy.partition)
    return [
        "## Use",
        "",
        "The graph takes observations as the environments give them, and returns actions.",
        "",
        "```python",
        "import gymnasium",
        "import onnxruntime",
        "",
        f"session = onnxruntime.InferenceSession({_quoted(f'{name}.onnx')})",
        "env = gymnasium.make(",
        f'    "stallward.env.gym:{_ENVIRONMENT}",',
        *([] if policy.features is BASIC else [f'    features="{policy.features.name}",']),
        *_dictionary("    settings=", settings),
        ")",
        "observation, _ = env.reset(seed=1)",
        "truncated = False",
        "while not truncated:",
        '    (actions,) = session.run(["action"], {"observation": observation[None]})',
        "    observation, reward, _, truncated, info = env.step(actions[0])",
        "```",
        "",
        f"On a node: `stallward ctl push {name}.onnx`.",
        "",
    ]


def _dictionary(before: str, values: Mapping[str, Any]) -> list[str]:
    """The lines of a Python dictionary, one entry on each."""
    indent = " " * (len(before) - len(before.lstrip()))
    lines = [f"{before}{{"]
    for key, value in values.items():
        name = f"{indent}    {_quoted(key)}: "
        if isinstance(value, Mapping):
            lines += _dictionary(name, value)
        else:
            lines.append(f"{name}{_quoted(value) if isinstance(value, str) else repr(value)},")
    return [*lines, f"{indent}}},"]


def _quoted(words: str) -> str:
    """A string of YAML, and of Python."""
    return json.dumps(words, ensure_ascii=False)


_COLUMNS: Final = (
    "score", "score_low", "progress", "window_violated", "excess", "slow", "switches_per_s",
)  # fmt: skip
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
    "partition": "`partition`",
}
"""The arms that a policy should beat, with their names on the card."""
_SHOWN_AS_TEXT: Final = ("evaluation", "allowed", "curve", "curves_by_seed", "groups")
"""Keys of the provenance that the card shows in another form than JSON."""
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


def card(name: str, policy: TrainedPolicy, digest: str, size_bytes: int, ood_limit: float) -> str:
    """The policy's card, in Markdown.

    Args:
        name: The name of the policy.
        policy: The policy with its provenance.
        digest: The SHA-256 of its file.
        size_bytes: The size of its file.
        ood_limit: Share of features out of range above which the policy is not trusted.
    """
    facts = policy.provenance
    lines = [
        *metadata(name, facts),
        f"# Policy `{name}`",
        "",
        *_DECIDES[policy.table.name],
        f"A decision holds for {policy.ticks_per_action} ticks of 0.1 s.",
        "",
        f"- File: {size_bytes} bytes, SHA-256 `{digest}`",
        f"- Schema: `{schema_hash(policy.table, policy.features)}`"
        f" ({policy.features.size} features, action table `{policy.table.name}`)",
        f"- Out of distribution: more than {ood_limit:.0%} of the features outside the range",
        "  seen in training; the daemon's default rule then decides.",
        "",
        *usage(name, policy),
        *_data(facts),
        *_results(facts),
        *_weaknesses(facts),
        *_seeds(facts),
        "## Training",
        "",
        "```json",
        json.dumps(
            {k: v for k, v in facts.items() if k not in _SHOWN_AS_TEXT}, indent=1, default=str
        ),
        "```",
        "",
    ]
    return "\n".join(lines)


def _data(facts: Mapping[str, Any]) -> list[str]:
    trained, validation = sorted(facts.get("twins", ())), facts.get("judged_on", ())
    if not trained:
        return []
    known = {*trained, *validation}
    unseen = sorted(s.name for s in find_scenarios() if s.name not in known)
    both = f"those of {_listed(validation)}, and half on these"
    chosen_on = "the same" if set(validation) == set(trained) else both
    return [
        "## Data",
        "",
        f"- Trained on the twins of {_listed(trained)}; the recordings they were fitted to are",
        "  named below.",
        *_groups(facts.get("groups", {})),
        f"- The seed was chosen on {chosen_on}.",
        f"- Shipped scenarios that it has never seen: {_listed(unseen) or 'none'}.",
        "",
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
    """The table of outcomes, with a row for every scenario and arm."""
    evaluation = facts.get("evaluation")
    if not evaluation:
        return ["## Results on the twin", "", "Not evaluated.", ""]
    rows = [
        "## Results on the twin",
        "",
        "| scenario | arm | " + " | ".join(_COLUMNS) + " |",
        "| --- | --- |" + " ---: |" * len(_COLUMNS),
    ]
    for scenario in evaluation["ppo"]:
        for arm, outcomes in evaluation.items():
            cells = " | ".join(f"{outcomes[scenario][c]:.3f}" for c in _COLUMNS)
            rows.append(f"| {scenario} | {arm} | {cells} |")
        limits = facts["allowed"][scenario]
        free = [f"{limits[c]:.3f}" if c in limits else "" for c in _COLUMNS]
        rows.append(f"| {scenario} | *allowed* | " + " | ".join(free) + " |")
    return [
        *rows,
        "",
        "`score` is background progress less penalties for what goes beyond what is allowed,",
        "`score_low` its 95 % lower confidence bound over draws; `window_violated` is the share",
        "of windows that miss the target, `excess` by how many times the mean latency is longer",
        "than with ample memory, `slow` the share of requests slower than 1.15 times its p99;",
        "`static` is the best static setting found for all that were trained on; `rule`, `pi` and",
        "`partition` have the thresholds that they were shipped with or given. All met the same",
        "draws, by which none of them was chosen.",
        "",
    ]


def _weaknesses(facts: Mapping[str, Any]) -> list[str]:
    """The scenarios in which the policy exceeds what is allowed or does not beat a baseline."""
    weaknesses = []
    evaluation = facts.get("evaluation", {})
    for scenario, outcome in evaluation.get("ppo", {}).items():
        allowed = facts["allowed"][scenario]
        over = [
            f"{_COST_NAMES[cost]} {outcome[cost]:.2%}, allowed {allowed[cost]:.2%}"
            for cost in SUFFERED
            if outcome[cost] > allowed[cost]
        ]
        if over:
            weaknesses.append(f"- `{scenario}`: {'; '.join(over)}.")
        for arm, baseline in _BASELINES.items():
            other = evaluation.get(arm, {}).get(scenario, {}).get("score", -math.inf)
            if outcome["score"] <= other:
                weaknesses.append(
                    f"- `{scenario}`: no better than {baseline} "
                    f"(score {outcome['score']:.3f} and {other:.3f})."
                )
    return [
        "## Known weaknesses",
        "",
        *weaknesses,
        "- All of this is on the twin; its own comparison with the node says what its errors are.",
        "  On other applications and machines the policy has been measured only where a live",
        "  comparison says so. The guard of the daemon always holds.",
        "",
    ]


def _seeds(facts: Mapping[str, Any]) -> list[str]:
    """The table of seeds, and the training curve of each."""
    seeds, curves = facts.get("seeds"), facts.get("curves_by_seed")
    if not seeds or not curves:
        return []
    merits, lows = facts["merits"], facts["scores_low"]
    rows = [
        f"| {seed}{' (kept)' if merit == max(merits) else ''} | {merit:.3f} | {low:.3f} |"
        for seed, merit, low in zip(seeds, merits, lows, strict=True)
    ]
    millions = facts["steps"] / 1e6
    lines = [f"    line [{', '.join(f'{v:g}' for v in curve)}]" for curve in curves if curve]
    return [
        "## Seeds",
        "",
        "| seed | by which it is chosen | lowest `score_low` of those judged on |",
        "| --- | ---: | ---: |",
        *rows,
        "",
        "Chosen by half of that bound and half of the mean bound of the scenarios trained on.",
        "",
        "Score while training, without exploring, the mean over what is trained on; one line a",
        "seed. Before the first point the policy is `partition`.",
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
