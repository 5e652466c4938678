"""A policy as training keeps it: a zip of stable-baselines3, which ``PPO.load`` opens.

The model in the zip has the observations and actions of the environments. Its critic is that of the
training without what no policy can know on a node. Its attribute ``stallward`` holds, in plain JSON,
what an ONNX file has as metadata, and what an environment is made with; it stays when somebody
trains the model further and saves it.

Reading takes that and the weights. Nothing is unpickled, so a zip of somebody else is safe to name.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

from stallward.agent.control_law.thresholds import as_values
from stallward.agent.controllers.policy_metadata import parse_metadata
from stallward.agent.errors import PolicyError
from stallward.agent.observation.encoder import schema_hash
from stallward.agent.schema.file_kinds import next_step_of, other_kind_of
from stallward.agent.schema.text_file import read_text_file
from stallward.env.gym.spaces import spaces
from stallward.training.errors import TrainingError
from stallward.training.network.actor import (
    SlotPolicy,
    actor_arrays,
    policy_kwargs,
    set_parameters,
)
from stallward.training.network.arrays import (
    POLICY_FILE,
    TRAINING_FILE,
    TrainedPolicy,
    metadata_of,
)
from stallward.training.ppo.args import Args
from stallward.training.ppo.model import make_model

_NOTES: Final = "stallward"
"""The attribute of the model."""
_BROKEN: Final = (
    OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, EOFError,
    zipfile.BadZipFile, zlib.error, pickle.UnpicklingError,
)  # fmt: skip
"""What readers of archives, JSON and tensors raise."""
_AGAIN: Final = "Train again with `stallward train`."
_MOST_BYTES: Final = 64 << 20
"""The largest part of a zip that is read, as large as a policy that a node takes."""
_ZIP: Final = b"PK\x03\x04"
"""How weights begin that torch takes for a zip."""


class _Spaces(gymnasium.Env[Any, Any]):
    """What a model must know of an environment that it is not trained on.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: TrainedPolicy) -> None:
        self.observation_space, self.action_space = spaces(policy.table, policy.features)


def to_model(policy: TrainedPolicy, args: Args) -> PPO:
    """The model that the zip holds.

    Args:
        policy: The policy. Where it does not come with a critic, that is a new one.
        args: The settings of its training, which it keeps for being trained further. A rollout has
            as many decisions as a gradient step, because one environment does not fill more.
    """
    settings = replace(args.settings, action_table=policy.table.name)
    args = replace(args, n_steps=args.batch_size, features=policy.features.name, settings=settings)
    model = make_model(
        _Spaces(policy), args, policy.mean, policy.scale, seed=args.seed, budget=None
    )
    set_parameters(model.policy, policy.parameters)
    model.num_timesteps = int(policy.provenance.get("steps", 0))
    environment = {
        "features": policy.features.name,
        "settings": {
            "action_table": policy.table.name,
            "ticks_per_action": policy.ticks_per_action,
            "partition": as_values(policy.partition),
        },
    }
    setattr(model, _NOTES, {"environment": environment, "metadata": metadata_of(policy)})
    return model


def save_policy(folder: Path, policy: TrainedPolicy, args: Args) -> None:
    """Write a policy and what is known of it into ``folder``, each file atomically.

    Args:
        folder: The folder of a run, or of one of its seeds.
        policy: The policy, with its parameters.
        args: The settings of its training.
    """
    folder.mkdir(parents=True, exist_ok=True)
    payload = io.BytesIO()
    to_model(policy, args).save(payload)
    described = {
        "schema_hash": schema_hash(policy.table, policy.features),
        "features": policy.features.name,
        "action_table": policy.table.name,
        "partition": as_values(policy.partition),
        "ticks_per_action": policy.ticks_per_action,
        "provenance": dict(policy.provenance),
    }
    text = json.dumps(described, indent=1, default=str) + "\n"
    for name, content in ((POLICY_FILE, payload.getvalue()), (TRAINING_FILE, text.encode())):
        building = folder / f".{name}.{os.getpid()}.partial"
        building.write_bytes(content)
        building.replace(folder / name)


def load_policy(folder: Path) -> TrainedPolicy:
    """Read what :func:`save_policy` wrote.

    Raises:
        TrainingError: If it is missing or broken, or has another observation schema.
    """
    policy = read_zip(folder / POLICY_FILE)
    try:
        provenance = json.loads(read_text_file(folder / TRAINING_FILE))["provenance"]
        return replace(policy, provenance=dict(provenance))
    except _BROKEN as error:
        raise _unreadable(folder / TRAINING_FILE, error) from error


def read_zip(path: Path) -> TrainedPolicy:
    """Read the policy in a zip of this module, or of a model that was trained further.

    Raises:
        TrainingError: If it is missing or broken, holds something else, or was trained for another
            observation schema or network.
    """
    try:
        notes, state = _contents(path)
    except _BROKEN as error:
        raise _unreadable(path, error) from error
    if notes is None:
        raise TrainingError(
            f"{path} is a model of stable-baselines3, but its policy is not one of `stallward "
            "train`.",
            next_step="Give the policy.zip of a run, or what was trained further from one.",
        )
    try:
        metadata = parse_metadata(path, notes["metadata"], "")
    except PolicyError as error:
        raise TrainingError(error.cause, next_step=_AGAIN) from error
    except _BROKEN as error:
        raise _unreadable(path, error) from error
    table, features = metadata.table, metadata.features
    nothing = np.zeros(features.size, dtype=np.float32)
    network = SlotPolicy(
        *spaces(table, features),
        lambda _left: 0.0,
        table=table,
        features=features,
        **policy_kwargs(nothing, nothing + 1.0),
    )
    if difference := _first_difference(state, network.state_dict()):
        raise TrainingError(
            f"The network in {path} is not the one that is trained here: {difference}.",
            next_step=_AGAIN,
        )
    network.load_state_dict(state)
    try:
        return TrainedPolicy(
            **actor_arrays(network),
            low=np.array(metadata.observation_low, dtype=np.float32),
            high=np.array(metadata.observation_high, dtype=np.float32),
            table=table,
            features=features,
            partition=metadata.partition,
            ticks_per_action=metadata.ticks_per_action,
            provenance=metadata.provenance,
        )
    except TrainingError as error:
        raise TrainingError(f"{path}: {error.cause}", next_step=error.next_step) from error


def _contents(path: Path) -> tuple[Any, Mapping[str, torch.Tensor]]:
    """The notes in a zip, ``None`` if it has none, and the weights of its policy."""
    try:
        with zipfile.ZipFile(path) as archive:
            notes = json.loads(_part(archive, "data")).get(_NOTES)
            weights = _part(archive, "policy.pth")
    except zipfile.BadZipFile as error:
        if not path.read_bytes().startswith(b"PK"):
            raise other_kind_of(path) or error from error
        raise
    if weights.startswith(_ZIP):  # torch writes it unpacked, and would unpack it without a bound
        with zipfile.ZipFile(io.BytesIO(weights)) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise ValueError("its weights are packed")
    # Some versions of the library let this unpickle anything.
    state = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
    if not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise TypeError("its weights are not tensors")
    return notes, state


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    """A part of a zip.

    Raises:
        ValueError: If it is too large, or packed in a way that is not unpacked bit by bit.
    """
    part = archive.getinfo(name)
    if part.file_size > _MOST_BYTES:
        raise ValueError(f"{name} has {part.file_size} bytes, more than {_MOST_BYTES}")
    if part.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError(f"{name} is packed in another way than is read")
    with archive.open(part) as file:
        return file.read(_MOST_BYTES)


def _unreadable(path: Path, error: Exception) -> TrainingError:
    return TrainingError(
        f"{path} does not hold a trained policy: {error}.",
        next_step=next_step_of(error, "Give the folder that `stallward train --out` wrote."),
    )


def _first_difference(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> str:
    """The first difference between two networks, in words; empty if there is none."""
    for name in dict.fromkeys([*expected, *found]):
        shapes = [
            "x".join(map(str, network[name].shape)) if name in network else "missing"
            for network in (found, expected)
        ]
        if shapes[0] != shapes[1]:
            return f"{name} is {shapes[0]} and not {shapes[1]}"
    return ""
