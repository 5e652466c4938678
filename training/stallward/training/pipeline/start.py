"""Finds the policy with which a training begins: a run, a zip, an ONNX file or a shipped policy."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from stallward.agent.errors import UsageError
from stallward.models.registry import find_policy, policy_names
from stallward.training.errors import TrainingError
from stallward.training.export.onnx_file import read_policy
from stallward.training.network.actor import shared_weights
from stallward.training.network.arrays import POLICY_FILE, SEEDS_FOLDER, TrainedPolicy
from stallward.training.ppo.saved import read_zip
from stallward.training.ppo.start import Start


def read_start(name: str, out: Path) -> Start:
    """Read the policy with which a training begins.

    Args:
        name: The directory of a run, its zip, a zip of what was trained further, an ONNX file, or
            the name of a shipped policy.
        out: The directory of the run that begins, which is another one.

    Raises:
        StallwardError: If there is no such policy, it cannot be read, or its weights cannot be
            trained here.
    """
    path = _file_of(name)
    if out.resolve() in path.resolve().parents:
        raise UsageError(
            f"{path} belongs to the run in {out}, which would begin with its own result.",
            next_step="Name a new directory with --out.",
        )
    policy = _with_parameters(path) if path.suffix == ".onnx" else read_zip(path)
    given = Path(name).resolve()
    inside = f"{given.parent.name}/" if given.name == POLICY_FILE else ""
    return Start(
        name=f"{inside}{given.name}",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        policy=policy,
    )


def _file_of(name: str) -> Path:
    path = Path(name)
    if not path.is_dir():
        if name in policy_names() or path.is_file():
            return find_policy(name)
        raise TrainingError(
            f"There is no policy {name!r}.",
            next_step="Give the directory of a run, the policy.zip in it, an ONNX file, or the "
            f"name of a shipped policy: {', '.join(policy_names())}.",
        )
    if (path / POLICY_FILE).is_file():
        return path / POLICY_FILE
    if (path / SEEDS_FOLDER).is_dir():
        raise TrainingError(
            f"The run in {path} is not finished.",
            next_step="Repeat its command, or give the policy.zip of one of its seeds.",
        )
    raise TrainingError(
        f"{path} is not the directory of a run.",
        next_step="Give one that `stallward train --out` wrote.",
    )


def _with_parameters(path: Path) -> TrainedPolicy:
    """The policy in an ONNX file, without a critic."""
    policy = read_policy(path)
    try:
        return replace(policy, parameters=shared_weights(policy))
    except TrainingError as error:
        raise TrainingError(
            f"The network in {path} is not the one that is trained here. {error.cause}",
            next_step="Give a policy of `stallward train`, or train from the beginning.",
        ) from error
