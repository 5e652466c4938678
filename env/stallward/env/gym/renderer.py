"""Renders the nodes of an environment: as text (``ansi``) or as a picture (``rgb_array``)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.errors import UsageError
from stallward.agent.observation.raw import NODE, RawFrame
from stallward.env.gym.node_view import SHOWN_S, LatencyPoint, NodeView, Scene, latency_of, view_of

RENDER_MODES: Final = ["ansi", "rgb_array"]
_TICKS: Final = round(SHOWN_S / 0.1) + 1
"""As many latencies as can be shown: there is at most one a tick."""


@dataclass(slots=True, kw_only=True)
class _Node:
    """What is remembered of one node."""

    scene: Scene
    began_s: float
    frame: RawFrame
    latencies: deque[LatencyPoint]


class Renderer:
    """Shows nodes as they are now, with their latencies of the last half a minute.

    Where it is ``active`` it has to be told of the beginning of each episode and of each step.

    Args:
        render_mode: One of :data:`RENDER_MODES`, or ``None`` to show nothing.

    Raises:
        UsageError: If there is no such mode.
    """

    def __init__(self, render_mode: str | None) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UsageError(
                f"There is no render mode {render_mode!r}.",
                next_step=f"Take one of {', '.join(RENDER_MODES)}.",
            )
        self._mode = render_mode
        self._nodes: dict[int, _Node] = {}

    @property
    def active(self) -> bool:
        """Whether there is anything to show."""
        return self._mode is not None

    def begin(self, index: int, scene: Scene, frame: RawFrame) -> None:
        """An episode begins on a node."""
        latencies: deque[LatencyPoint] = deque([latency_of(frame)], maxlen=_TICKS)
        self._nodes[index] = _Node(
            scene=scene, began_s=frame.node[NODE["time_s"]], frame=frame, latencies=latencies
        )

    def step(self, index: int, frame: RawFrame) -> None:
        """A node has made a step."""
        node = self._nodes[index]
        node.frame = frame
        node.latencies.append(latency_of(frame))

    def render(self, index: int = 0) -> str | NDArray[np.uint8] | None:
        """Show a node.

        Returns:
            Lines of text, a picture (:func:`~stallward.env.gym.view_picture.picture_of`), or
            nothing where there is no mode or no episode.
        """
        node = self._nodes.get(index)
        if node is None or self._mode is None:
            return None
        view = view_of(node.frame, node.scene, began_s=node.began_s, latencies=node.latencies)
        return _shown(view, self._mode)


def _shown(view: NodeView, mode: str) -> str | NDArray[np.uint8]:
    # Only what is shown is loaded: training needs neither.
    if mode == "ansi":
        from stallward.env.gym.view_text import text_of  # noqa: PLC0415

        return text_of(view)
    from stallward.env.gym.view_picture import picture_of  # noqa: PLC0415

    return picture_of(view)
