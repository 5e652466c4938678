"""Which action table recordings and candidates are about: limit levels, or set-points.

A policy of set-points can be judged only by recordings of random set-points, and beside it only
``partition``, which leaves everything to itself. Every other controller is judged by recordings of
random limit levels, to which its wishes are rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stallward.agent.action_table import ACTION_TABLES, LEVELS, SET_POINTS, ActionTable
from stallward.agent.controller import Controller, Decision
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.env.recording.recording import Recording
from stallward.training.errors import DatasetError

_LENGTHS: Final = {len(table.sizes): table for table in ACTION_TABLES.values()}
_RECORDED: Final = PartitionThresholds()
"""The numbers of ``partition`` with which ``excite`` follows random set-points."""


def table_of_recording(recording: Recording) -> ActionTable | None:
    """The action table of the actions that a recording holds with their propensities.

    It is known by their length; ``None`` without such actions.
    """
    if "propensity" not in recording.actions:
        return None
    lengths = (len(str(text).split(",")) for text in recording.actions.get("action", ()))
    return next((_LENGTHS[length] for length in lengths if length in _LENGTHS), None)


def common_table(controllers: Iterable[Controller]) -> ActionTable:
    """The action table by which these controllers are judged together.

    Raises:
        DatasetError: If one of them has to be judged by another one than the rest.
    """
    known = tuple(controllers)
    points = [one for one in known if isinstance(one, OnnxController) and _chooses_points(one)]
    table = SET_POINTS if points else LEVELS
    for controller in known:
        check_table(controller, table)
    return table


def check_table(controller: Controller, table: ActionTable) -> None:
    """Refuse a controller that recordings of this action table cannot judge.

    Raises:
        DatasetError: If its actions are of another table, or it divides by other numbers than
            were recorded.
    """
    if table is LEVELS:
        if isinstance(controller, OnnxController) and _chooses_points(controller):
            raise DatasetError(
                f"{controller.path} chooses set-points, and the recordings are of limit levels.",
                next_step="Record the arm excite:table=set-points.",
            )
        return
    if isinstance(controller, OnnxController) and _chooses_points(controller):
        numbers, name = controller.metadata.partition, str(controller.path)
    elif isinstance(controller, PartitionController):
        numbers, name = controller.thresholds, repr(controller.name)
    else:
        raise DatasetError(
            f"{controller.name!r} chooses no set-points.",
            next_step="Judge it in a call of its own; policies of set-points are compared with "
            "partition.",
        )
    if numbers != _RECORDED:
        raise DatasetError(
            f"{name} divides by other numbers of partition than the arm excite.",
            next_step="Compare it on twins or live.",
        )


def set_points_of(controller: Controller, decision: Decision) -> tuple[int, ...]:
    """The set-points of a decision; ``partition`` by itself leaves all of them ``auto``.

    Args:
        controller: A controller that passed :func:`check_table`.
        decision: What it decided.
    """
    if decision.action is None:
        assert isinstance(controller, PartitionController)
        return (0,) * len(SET_POINTS.sizes)
    return tuple(decision.action)


def _chooses_points(controller: OnnxController) -> bool:
    return controller.metadata.table is SET_POINTS
