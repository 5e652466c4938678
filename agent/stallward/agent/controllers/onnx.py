"""``onnx``: runs any exported policy file, after checking it.

A policy is one ONNX file. Its input is ``observation`` (float32, ``[1, N]`` with the first numbers
of an observation, not normalised: the network does that itself). Its outputs are ``action``
(int64, one entry per component of the action table) and ``logits``. Its metadata holds the schema
with which it was trained; a file with another schema is refused, with the first difference in the
message.

It runs on every node. A signal that is absent is 0 in the observation, as the schema says,
and an action moves the levers that there are.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import SET_POINTS
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.controllers.partition import PartitionController
from stallward.agent.controllers.policy_file import messages, read_policy
from stallward.agent.controllers.policy_metadata import PolicyMetadata, parse_metadata
from stallward.agent.controllers.policy_shapes import RULES, check_shapes
from stallward.agent.desired import RELEASED, check_action, decode_action
from stallward.agent.errors import ActionError, ControllerError, PolicyError
from stallward.agent.inference import import_runtime
from stallward.agent.observation.encoder import OBSERVATION_NAMES
from stallward.agent.plugin import ControllerEntry
from stallward.agent.sample import Sample
from stallward.agent.set_points import decode_set_points

# ---------- Says in words why ONNX Runtime refused a model; its own messages name lines of its C++ code

_IR_VERSION: Final = re.compile(
    r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"
)
_OPSET: Final = re.compile(r"Opset (\d+) is under development.*till opset (\d+)", re.DOTALL)
_NO_OPERATOR: Final = re.compile(r"([\w.:]+)\(-?\d+\) is not a registered function/op")
_NOT_REGISTERED: Final = re.compile(r"No Op registered for (\w+) with")
_NOT_IMPLEMENTED: Final = re.compile(r"Could not find an implementation for ([\w.]+\(\d+\))")
_PREFIX: Final = re.compile(r"^(\[ONNXRuntimeError\] : \d+ : \w+ : )?")
_CODE: Final = re.compile(r"\S+\.(?:cc|cpp|cu|h|hpp)\b|\w::\w|\[with \w+ = |&&")
"""Signs of C++: a file, a qualified name, a template's arguments, a condition."""
_MOST_CHARACTERS: Final = 200


def runtime_cause(error: Exception) -> str:
    """The cause of an error that ONNX Runtime raised, in one line without any of its code."""
    text = str(error)
    if match := _IR_VERSION.search(text):
        version, most = match.groups()
        return f"its IR version is {version}, and this ONNX Runtime reads up to {most}"
    if match := _OPSET.search(text):
        opset, most = match.groups()
        return f"its opset is {opset}, and this ONNX Runtime knows up to {most}"
    for missing in (_NO_OPERATOR, _NOT_REGISTERED, _NOT_IMPLEMENTED):
        if match := missing.search(text):
            return f"this ONNX Runtime has no operator {match.group(1)}"
    if "Protobuf parsing failed" in text:
        return "it is damaged"
    first = _PREFIX.sub("", text).splitlines()[0] if text else ""
    plain = first if not _CODE.search(first) else ""
    return plain.strip()[:_MOST_CHARACTERS].rstrip(" .") or f"ONNX Runtime: {type(error).__name__}"


# ---------- What the network of a policy may be made of, checked before anything runs it
# A policy maps one observation to one action. That takes arithmetic on tensors. Loops and branches
# could run for ever, random operators would make replays differ, and operators of other domains are
# code that nobody here has seen.

_OP_TYPE, _DOMAIN = 4, 7
"""The fields of a node (onnx.proto)."""
_FUNCTIONS: Final = 25
"""The field of a model with functions of its own."""
_STANDARD: Final = frozenset({"", "ai.onnx"})
_MOST_NAMED: Final = 5

ALLOWED: Final = frozenset({*RULES, "Constant"})
"""The operators that a policy may use: they end, give the same for the same input, and have results
of known size."""


def check_operators(path: Path, model: bytes) -> None:
    """Refuse a network with operators that a policy may not use.

    Args:
        path: The policy's file, for messages.
        model: Its content, which is the message of a model.

    Raises:
        PolicyError: If it has one.
    """
    refused: dict[str, None] = {}
    for kind, fields in messages(model):
        if kind == "ModelProto" and any(number == _FUNCTIONS for number, _ in fields):
            refused.setdefault("functions of its own")
        if kind != "NodeProto":
            continue
        texts = {
            number: bytes(value).decode("utf-8", "replace")
            for number, value in fields
            if number in {_OP_TYPE, _DOMAIN} and isinstance(value, memoryview)
        }
        name, domain = texts.get(_OP_TYPE, ""), texts.get(_DOMAIN, "")
        if domain not in _STANDARD:
            refused.setdefault(f"{name} of {domain}"[:80])
        elif name not in ALLOWED:
            refused.setdefault(name[:80])
    if refused:
        names = ", ".join(sorted(refused)[:_MOST_NAMED])
        raise PolicyError(
            f"The policy {path} uses what no policy may: {names}.",
            next_step="Export it with `stallward export`: arithmetic and ArgMax are enough.",
        )


_INPUT: Final = "observation"
_OUTPUTS: Final = ("action", "logits")
_PROBES: Final = 5
"""How many observations between the bounds of training are tried."""
_TIMED: Final = 3
"""After so many the fastest must have been fast enough."""
MAX_INFERENCE_S: Final = 0.02
"""The longest time for an action, at best: a fifth of a tick."""


class OnnxController:
    """Runs one policy file with ONNX Runtime, on one thread.

    Args:
        path: The policy file.

    Raises:
        PolicyError: If the file is missing, is not a policy, has another schema or does not run.
    """

    name = "onnx"
    needs_processes = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata, session = _open(path)
        self._inputs = self.metadata.features.size
        self._run = _Inference(path, session, self._inputs)
        self._partition = PartitionController(self.metadata.partition)
        self._low = np.asarray(self.metadata.observation_low, dtype=np.float32)
        self._high = np.asarray(self.metadata.observation_high, dtype=np.float32)
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))
        self._probe()

    def _probe(self) -> None:
        """Run the policy where it was trained to, so that one that fails does so here.

        Raises:
            PolicyError: If an action or a value is not what it must be, or it takes too long.
        """
        rng = np.random.default_rng(0)
        low, high = self._low.astype(np.float64), self._high.astype(np.float64)
        inside = rng.uniform(low, high, size=(_PROBES, self._inputs))
        zeros = np.zeros(self._inputs)
        least_s = math.inf
        for number, observation in enumerate((zeros, low, high, *inside), start=1):
            begin_s = time.perf_counter()
            try:
                action = self._infer(np.asarray(observation, dtype=np.float32))
            except PolicyError:
                raise
            except Exception as error:  # ORT raises its own types without a common base
                raise PolicyError(
                    f"{self.path} does not run ({runtime_cause(error)}).",
                    next_step="Export it again with `stallward export`.",
                ) from error
            least_s = min(least_s, time.perf_counter() - begin_s)
            if number >= _TIMED and least_s > MAX_INFERENCE_S:
                raise PolicyError(
                    f"{self.path} takes {1e3 * least_s:.0f} ms for an action, and at most "
                    f"{1e3 * MAX_INFERENCE_S:.0f} ms are allowed.",
                    next_step="Train a smaller network.",
                )
            self._check(action)

    @property
    def sha256(self) -> str:
        """The digest of the policy file, in hexadecimal."""
        return self.metadata.sha256

    @property
    def schema_hash(self) -> str:
        """The hash of the schema that the policy was trained for."""
        return self.metadata.schema_hash

    @property
    def ood_limit(self) -> float:
        """The largest score of an observation that is still near the training data."""
        return self.metadata.ood_limit

    def logits(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """The network's logits for an observation, one head after the other."""
        return np.array(self._run(observation)[1][0], dtype=np.float32)

    def reset(self, context: NodeContext) -> None:
        """Forget the action that is held."""
        self._context = context
        self._partition.reset(context)
        self._release()

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target; the action that is held stays so."""
        self._context = replace(self._context, slo_ms=slo_ms)
        self._partition.retarget(slo_ms)

    def _release(self) -> None:
        self._held_ticks = 0
        self._nothing = (0,) * len(self.metadata.table.sizes)
        self._action = self._nothing
        self._score = 0.0

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Infer an action every ``ticks_per_action`` ticks and hold it in between.

        While no slot has a group that has started, nothing is inferred, nor from an observation
        that is too far from those of the training: nobody uses that action.

        Raises:
            PolicyError: If the observation or the policy's output is not finite.
        """
        nobody = all(state.reference_bytes is None for state in sample.slot_states)
        if nobody:
            self._release()
        elif self._held_ticks == 0 or self._answers_at_once():
            seen = observation[: self._inputs]
            outside = (seen < self._low) | (seen > self._high)
            self._score = np.count_nonzero(outside) / self._inputs
            trusted = self._score <= self.ood_limit
            self._action = self._infer(observation) if trusted else self._nothing
            self._held_ticks = self.metadata.ticks_per_action
        self._held_ticks = max(self._held_ticks - 1, 0)
        if self.metadata.table is SET_POINTS:
            divided = self._partition.divide(sample, decode_set_points(self._action))
            return replace(
                divided,
                reason=f"policy; {divided.reason}",
                action=self._action,
                score=self._score,
            )
        if nobody:
            return Decision(
                desired=RELEASED, reason="no background", action=self._action, score=0.0
            )
        floors = [self._context.floor(i) for i in range(len(sample.slots))]
        return Decision(
            desired=decode_action(self._action, sample.slot_states, floors),
            reason="policy",
            action=self._action,
            score=self._score,
        )

    def _answers_at_once(self) -> bool:
        """Whether no held action is in force.

        A limit level that does nothing is not held, so that the policy answers a stall at the tick
        at which it begins. Under set-points ``partition`` answers at every tick.
        """
        return self.metadata.table is not SET_POINTS and not any(self._action)

    def _check(self, action: tuple[int, ...]) -> None:
        """Refuse a network whose actions are not those that its metadata names."""
        table = self.metadata.table
        try:
            check_action(action, table.sizes)
        except ActionError as error:
            raise PolicyError(
                f"{self.path} says that its actions are {table.name}, but: {error.cause}",
                next_step="Export it again with `stallward export`.",
            ) from error

    def _infer(self, observation: NDArray[np.float32]) -> tuple[int, ...]:
        # ArgMax over NaN returns 0 silently, so both ends are checked.
        if not np.isfinite(observation).all():
            name = OBSERVATION_NAMES[int(np.argmin(np.isfinite(observation)))]
            raise PolicyError(f"The observation is not finite ({name}).")
        action, logits = self._run(observation)
        if not np.isfinite(logits).all():
            raise PolicyError(f"{self.path} returned a value that is not finite.")
        return tuple(action.ravel().tolist())


class _Inference:
    """A session whose input and outputs are bound to fixed arrays.

    Without the binding each run would check and copy them anew, which takes as long as the
    network itself.

    Args:
        path: The policy file, for messages.
        session: Its session.
        inputs: How many numbers of an observation it reads.

    Raises:
        PolicyError: If the policy does not run.
    """

    def __init__(self, path: Path, session: Any, inputs: int) -> None:
        self._session = session
        self._observation = np.zeros((1, inputs), dtype=np.float32)
        try:
            outputs = session.run(list(_OUTPUTS), {_INPUT: self._observation})
        except Exception as error:  # ORT raises its own types without a common base
            raise PolicyError(
                f"{path} does not run ({runtime_cause(error)}).",
                next_step="Export it again with `stallward export`.",
            ) from error
        self._outputs = tuple(np.ascontiguousarray(value) for value in outputs)
        arrays = {_INPUT: self._observation, **dict(zip(_OUTPUTS, self._outputs, strict=True))}
        # The OrtValues share memory with these arrays, which must live as long as they do.
        from_numpy = import_runtime().OrtValue.ortvalue_from_numpy
        self._values = {name: from_numpy(array) for name, array in arrays.items()}
        self._binding = session.io_binding()
        self._binding.bind_ortvalue_input(_INPUT, self._values[_INPUT])
        for name in _OUTPUTS:
            self._binding.bind_ortvalue_output(name, self._values[name])

    def __call__(self, observation: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return action and logits, in arrays that the next call overwrites."""
        self._observation[0] = observation[: self._observation.shape[1]]
        self._session.run_with_iobinding(self._binding)
        action, logits = self._outputs
        return action, logits


def _open(path: Path) -> tuple[PolicyMetadata, Any]:
    data = read_policy(path)
    check_operators(path, data)
    check_shapes(path, data)
    try:
        onnxruntime = import_runtime()
    except ImportError as error:
        raise PolicyError(
            "ONNX Runtime is not installed.", next_step="Install stallward[node]."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            data, sess_options=options, providers=["CPUExecutionProvider"]
        )
        entries = session.get_modelmeta().custom_metadata_map
    except Exception as error:  # ORT raises its own types without a common base
        raise PolicyError(
            f"{path} is not an ONNX model that can be run ({runtime_cause(error)}).",
            next_step="Export it with `stallward export`.",
        ) from error
    metadata = parse_metadata(path, entries, hashlib.sha256(data).hexdigest())
    inputs = {value.name for value in session.get_inputs()}
    outputs = {value.name for value in session.get_outputs()}
    if inputs != {_INPUT} or not set(_OUTPUTS) <= outputs:
        raise PolicyError(
            f"{path} has inputs {sorted(inputs)} and outputs {sorted(outputs)}.",
            next_step="Export it with `stallward export`.",
        )
    return metadata, session


def _make(arguments: Mapping[str, str]) -> OnnxController:
    if "path" not in arguments:
        raise ControllerError(
            "onnx needs a policy file.", next_step="Write onnx:path=/path/to/policy.onnx."
        )
    return OnnxController(Path(arguments["path"]))


ENTRY = ControllerEntry(
    name="onnx",
    summary="runs an exported policy file",
    make=_make,
    parameters={"path": "the policy file"},
)
