"""``run.json`` of a recording: what was run, where and with which versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.json_file import read_json_file
from stallward.agent.schema.read import NonNegativeFloat, NonNegativeInt, read
from stallward.env.errors import RecordingError
from stallward.env.scenario.scenario import Slo

SCHEMA_VERSION: Final = 2
READABLE: Final = (1, 2)
"""The schema versions that can be read. Version 1 holds times and timings as floating-point
numbers, version 2 holds them as whole microseconds."""
Condition = Literal["alone", "together", "ample", "background"]
CONDITIONS: Final[tuple[Condition, ...]] = get_args(Condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The machine a recording was made on."""

    kind: str
    """"v2", "hybrid" or "none"."""
    kernel: str
    cpu_count: NonNegativeInt
    memory_total_bytes: NonNegativeInt
    disk: str = ""
    """Device and file system that hold data and swap; empty if unknown."""
    cpu: str = ""
    """Name of the processor; latencies of different processors do not compare."""


def _check_word(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):  # it is a part of a file's name
        raise SchemaError(f"is {name!r:.80}, no name of an application.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What was run: the contents of ``run.json``."""

    scenario: str
    condition: Condition
    arm: str
    seed: NonNegativeInt
    start_s: NonNegativeFloat
    """CLOCK_MONOTONIC at which the block began, burn-in included."""
    end_s: NonNegativeFloat
    burn_in_s: NonNegativeFloat
    sandbox_bytes: NonNegativeInt
    """Memory limit of the zone in force during the run."""
    slo_ms: NonNegativeFloat
    node: NodeInfo
    request_rate_per_s: NonNegativeFloat = 0.0
    """Rate at which requests were scheduled; 0 if unknown."""
    swap_bytes: NonNegativeInt = 0
    slot_names: tuple[str, ...] = ()
    slot_floors_bytes: tuple[NonNegativeInt, ...] = ()
    """The floor of each slot; empty where only the scenario has it."""
    slot_units: tuple[str, ...] = ()
    """The unit of each slot's work, ``cpu-s`` for processor time; empty where only the scenario
    has it."""
    scenario_parameters: Mapping[str, object] = field(default_factory=dict)
    """The scenario file as it was read."""
    versions: Mapping[str, str] = field(default_factory=dict)
    oom_kills: NonNegativeInt = 0
    """How many processes the kernel killed because memory ran out."""
    limit_kills: NonNegativeInt = 0
    """How many of them it killed because of a slot's own limit, which the arm had set."""
    peer_kills: NonNegativeInt = 0
    """How many background processes the peer of an arm ``peer:NAME`` ended."""
    stolen_share: NonNegativeFloat = 0.0
    """Steal time as a share of the measured CPU time; 0 if unknown."""
    missing: tuple[str, ...] = ()
    """Signals and levers that the node did not have, and why; empty in recordings of versions that
    did not ask."""
    node_name: str = ""
    """The host name of the machine; empty in recordings of versions that did not write it, and
    where it is not known. It is no part of :attr:`node`, which says what machine it is: that is
    what latencies depend on, and what goes into results."""
    policy_sha256: str = ""
    """Hash of the file that the arm decided by: a policy, a twin, or thresholds; empty for none."""
    other_applications: tuple[Annotated[str, _check_word], ...] = ()
    """The protected applications beside the first, whose requests are in files of their own."""
    schema: NonNegativeInt = SCHEMA_VERSION

    @property
    def slo_quantile(self) -> float:
        """The quantile of the scenario's target; of the first application's, if there are several.

        Raises:
            RecordingError: If the recording's scenario has a quantile outside (0, 1).
        """
        value: Any = self.scenario_parameters.get("protected", {})
        if isinstance(value, list | tuple) and value:
            value = value[0]
        for key in ("slo", "quantile"):
            value = value.get(key, {}) if isinstance(value, Mapping) else {}
        if not isinstance(value, int | float):
            return Slo().quantile
        if not 0.0 < value < 1.0:
            raise RecordingError(f"A recording's slo.quantile is {value!r:.80}.")
        return float(value)

    def check_one_application(self, where: str) -> None:
        """Refuse the recording of several protected applications, where only one can be used.

        Args:
            where: Where the recording is, for the error.

        Raises:
            RecordingError: If there are several.
        """
        if self.other_applications:
            raise RecordingError(
                f"{where} is a recording of several protected applications "
                f"({', '.join(self.other_applications)} beside the first), and here there can be "
                "only one.",
                next_step="Leave it out, and record a node that protects one; `stallward compare "
                "--live` and `stallward assess` use several.",
            )

    @property
    def measured_from_s(self) -> float:
        """When the burn-in ends."""
        return self.start_s + self.burn_in_s


def load_run(path: Path) -> RunInfo:
    """Read only ``run.json`` of a recording.

    Raises:
        RecordingError: If it is missing, not a recording's, or of another version.
    """
    file = path / "run.json"
    again = "Record it again with `stallward record`."
    try:
        data = read_json_file(file)
    except FileNotFoundError as error:
        raise RecordingError(
            f"{path} is not a recording: it has no run.json.",
            next_step="Give the directory that `stallward record` wrote.",
        ) from error
    except (OSError, ValueError) as error:
        raise RecordingError(
            f"{file} cannot be read: {error}.", next_step=next_step_of(error, again)
        ) from error
    return run_of(data, f"{file}", again)


def run_of(data: object, where: str, again: str) -> RunInfo:
    """Read the content of a ``run.json``.

    Args:
        data: What it holds.
        where: Where it is from, for errors.
        again: What to do about an error.

    Raises:
        RecordingError: If it is not a recording's, or of another version.
    """
    if not isinstance(data, dict) or "schema" not in data or "scenario" not in data:
        raise RecordingError(f"{where} is not a recording's run.json.", next_step=again)
    if data["schema"] not in READABLE:
        raise RecordingError(
            f"{where} has recording schema {data['schema']!r:.80}, this program reads "
            f"{' and '.join(map(str, READABLE))}.",
            next_step=again,
        )
    known = {f.name for f in fields(RunInfo)}  # a later version may write more
    try:
        run = read(RunInfo, {key: value for key, value in data.items() if key in known})
        run.slo_quantile  # noqa: B018 - refused here rather than where it is used
    except RecordingError as error:
        raise RecordingError(f"{where}: {error.cause}", next_step=again) from error
    except SchemaError as error:
        raise RecordingError(
            f"{where} lacks a field, or has a wrong one: {error}", next_step=again
        ) from error
    if len(run.slot_floors_bytes) not in {0, len(run.slot_names)}:
        raise RecordingError(
            f"{where} does not say the floor of each of its slots.", next_step=again
        )
    return run
