"""The metadata of a policy file: what it was trained for, and what a node must know to run it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable, find_action_table
from stallward.agent.control_law.thresholds import make_thresholds
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.errors import PolicyError, ThresholdError
from stallward.agent.observation.encoder import (
    BASIC,
    FEATURE_SETS,
    FeatureSet,
    schema,
    schema_hash,
)

PREFIX: Final = "stallward."
_MAX_TICKS: Final = 1_000_000
_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)
PARTITION: Final = PartitionThresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMetadata:
    """The metadata of a policy file."""

    schema_hash: str
    table: ActionTable
    """What the entries of its actions are."""
    features: FeatureSet
    """What it reads of an observation."""
    partition: PartitionThresholds
    """The numbers of ``partition`` that it was trained with, if its actions are set-points."""
    ticks_per_action: int
    """For how many ticks an action holds."""
    observation_low: tuple[float, ...]
    """The least value of each feature in training."""
    observation_high: tuple[float, ...]
    """The greatest value of each feature in training."""
    ood_limit: float
    """The largest share of features outside these ranges at which the policy is still used."""
    provenance: Mapping[str, Any]
    """The recordings, twins and settings that the policy was made from."""
    sha256: str


def _first_difference(policy_schema: object, table: ActionTable, features: FeatureSet) -> str:
    """Describe the first entry in which a policy's schema differs from this version's."""
    if not isinstance(policy_schema, Mapping):
        return "the file holds no schema"
    for key, here in schema(table, features).items():
        in_policy = policy_schema.get(key)
        if in_policy == here:
            continue
        if isinstance(here, list) and isinstance(in_policy, list):
            for i, (mine, other) in enumerate(zip(here, in_policy, strict=False)):
                if mine != other:
                    return f"{key}[{i}] is {other!r} in the policy and {mine!r} here"
            return f"{key} has {len(in_policy)} entries in the policy and {len(here)} here"
        return f"{key} is {in_policy!r} in the policy and {here!r} here"
    return "the hash differs though no entry does: the file was edited"


def parse_metadata(path: Path, entries: Mapping[str, str], sha256: str) -> PolicyMetadata:
    """Read and check the metadata of a policy file.

    Args:
        path: The file, for messages.
        entries: The ONNX metadata.
        sha256: The digest of the file.

    Raises:
        PolicyError: If an entry is missing or invalid, or the policy has another schema.
    """
    try:
        policy_hash = entries[f"{PREFIX}schema_hash"]
        policy_schema = json.loads(entries[f"{PREFIX}schema"])
        table, features = _table_of(policy_schema), _features_of(policy_schema)
        metadata = PolicyMetadata(
            schema_hash=policy_hash,
            table=table,
            features=features,
            partition=_partition_of(entries, path) if table is SET_POINTS else PARTITION,
            ticks_per_action=int(entries[f"{PREFIX}ticks_per_action"]),
            observation_low=tuple(json.loads(entries[f"{PREFIX}observation_low"])),
            observation_high=tuple(json.loads(entries[f"{PREFIX}observation_high"])),
            ood_limit=float(entries[f"{PREFIX}ood_limit"]),
            provenance=dict(json.loads(entries.get(f"{PREFIX}provenance", "{}"))),
            sha256=sha256,
        )
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise PolicyError(
            f"{path} is not a stallward policy ({error!r}).",
            next_step="Export it with `stallward export`.",
        ) from error
    if policy_hash != schema_hash(table, features):
        difference = _first_difference(policy_schema, table, features)
        raise PolicyError(
            f"{path} was trained for another schema: {difference}.",
            next_step="Train and export it again with this version.",
        )
    bounds = {len(metadata.observation_low), len(metadata.observation_high)}
    if bounds != {features.size}:
        raise PolicyError(
            f"{path} has training bounds for {sorted(bounds)} features, not {features.size}.",
            next_step="Export it again with `stallward export`.",
        )
    if not _numbers_are_valid(metadata):
        raise PolicyError(
            f"{path} has bounds that are not ranges, or a wrong ood_limit or ticks_per_action.",
            next_step="Export it again with `stallward export`.",
        )
    return metadata


def _table_of(policy_schema: object) -> ActionTable:
    """The action table that a schema names; that of rules where it names none that is known."""
    name = policy_schema.get("action_table") if isinstance(policy_schema, Mapping) else None
    return find_action_table(name) or LEVELS


def _features_of(policy_schema: object) -> FeatureSet:
    """What a schema reads of an observation; the basic features where it is none that is known."""
    names = policy_schema.get("names") if isinstance(policy_schema, Mapping) else None
    return next((s for s in FEATURE_SETS.values() if list(s.names) == names), BASIC)


def _partition_of(entries: Mapping[str, str], path: Path) -> PartitionThresholds:
    values = json.loads(entries[f"{PREFIX}partition"])
    if not isinstance(values, dict):
        raise TypeError(f"{PREFIX}partition is no table")
    try:
        return make_thresholds(PartitionThresholds, values, str(path))
    except ThresholdError as error:
        raise PolicyError(error.cause, next_step="Export it again with this version.") from error


def _numbers_are_valid(metadata: PolicyMetadata) -> bool:
    """Whether all bounds are finite and in order (nothing is outside a NaN), the rest in range."""
    bounds = (*metadata.observation_low, *metadata.observation_high)
    finite = all(isinstance(b, int | float) and abs(b) < _FLOAT32_MAX for b in bounds)
    pairs = zip(metadata.observation_low, metadata.observation_high, strict=True)
    rest = 0 <= metadata.ood_limit <= 1 and 1 <= metadata.ticks_per_action <= _MAX_TICKS
    return finite and rest and all(low <= high for low, high in pairs)
