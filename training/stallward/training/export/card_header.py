"""The parts of a policy's card that other programs read: its metadata, and how to use it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from stallward.agent.action_table import LEVELS
from stallward.agent.control_law.thresholds import as_values
from stallward.agent.observation.encoder import BASIC
from stallward.training.network.arrays import TrainedPolicy

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
