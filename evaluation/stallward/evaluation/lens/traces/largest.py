"""The picture of the largest processes, and their tree as GraphML, LaTeX and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure

from stallward.actuator.lens.kinds import Key
from stallward.actuator.lens.tracers.largest import COLUMN_OF_KEY
from stallward.evaluation.errors import TraceFileError
from stallward.evaluation.lens.traces.file import TraceFile
from stallward.evaluation.lens.traces.picture import COLOURS
from stallward.evaluation.lens.traces.tree import Node, balanced_tree

_MIB: Final = float(1 << 20)
_MOST_AREA: Final = 2600.0
"""The area of the largest circle, in square points."""
_LEAST_AREA: Final = 14.0
_NAME: Final = 14
_LATEX_SPECIAL: Final = str.maketrans(
    {
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)
_GRAPHML_TYPES: Final = {int: "long", float: "double", str: "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The processes of one tick, the smallest first."""

    seconds: float
    """Since the begin of the trace."""
    key: Key
    processes: Sequence[Mapping[str, object]]

    def size(self, item: int) -> float:
        """What a process is ordered by: MiB, or seconds of processor time."""
        value = float(str(self.processes[item][COLUMN_OF_KEY[self.key]]))
        return value / 1e6 if self.key is Key.CPU else value / _MIB

    @property
    def unit(self) -> str:
        """The unit of :meth:`size`."""
        return "s" if self.key is Key.CPU else "MiB"


def largest_at(trace: TraceFile, at_s: float | None) -> Largest:
    """The processes at a time.

    Args:
        trace: A trace of the kind ``largest``.
        at_s: Seconds since its begin; the end if ``None``.

    Raises:
        TraceFileError: If there is no tick.
    """
    times = trace.numbers("time_us")
    if not times.size:
        raise TraceFileError(f"{trace.path} has no tick.", next_step="Trace again.")
    seconds = (times - times[0]) / 1e6
    ticks = np.unique(seconds)
    wanted = ticks[-1] if at_s is None else ticks[np.argmin(np.abs(ticks - at_s))]
    rows = trace.columns.filter(np.isclose(seconds, wanted)).to_pylist()
    rows.sort(key=lambda row: -int(row["rank"]))
    return Largest(seconds=float(wanted), key=Key(rows[0]["ordered_by"]), processes=rows)


def draw_largest(largest: Largest) -> Figure:
    """Draw the tree: larger processes to the right of smaller ones, circles by their size."""
    root = balanced_tree(len(largest.processes))
    assert root is not None
    nodes = list(root.walk())
    width = max(node.x for node in nodes) + 1.0
    depth = max(node.depth for node in nodes) + 1
    figure = Figure(
        figsize=(max(6.0, 1.0 * width + 1.0), 1.0 + 1.35 * depth), layout="constrained"
    )
    axes = figure.subplots()
    axes.set_axis_off()
    most = max((1e-9, *(largest.size(node.item) for node in nodes)))
    for node in nodes:
        for child in node.children:
            axes.plot(
                (node.x, child.x), (-node.depth, -child.depth), color="#999999", lw=1.0, zorder=1
            )
    for node in nodes:
        size = largest.size(node.item)
        area = max(_MOST_AREA * size / most, _LEAST_AREA)
        axes.scatter(node.x, -node.depth, s=area, color=COLOURS[0], edgecolors="white", zorder=2)
        axes.annotate(
            _label(largest, node),
            (node.x, -node.depth),
            xytext=(0.0, -np.sqrt(area / np.pi) - 3.0),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            zorder=3,
        )
    axes.set_xlim(-0.7, width - 0.3)
    axes.set_ylim(-depth + 0.1, 0.45)
    axes.set_title(_title(largest), loc="left", fontsize=10)
    return figure


def _label(largest: Largest, node: Node) -> str:
    size, name, pid = _label_words(largest, node)
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    return f"{name}\n{size}\n{pid}"


def _label_words(largest: Largest, node: Node) -> tuple[str, str, str]:
    """The size, the name and the number of a process."""
    process = largest.processes[node.item]
    size = f"{largest.size(node.item):,.1f} {largest.unit}"
    return size, str(process["name"]), str(process["pid"])


def _title(largest: Largest) -> str:
    sizes = [largest.size(item) for item in range(len(largest.processes))]
    what = "processor time" if largest.key is Key.CPU else str(largest.key).upper()
    title = f"The {len(sizes)} largest processes by {what}"
    if len(sizes) > 1 and sizes[-2] > 0.0:
        title += f"; the largest is {sizes[-1] / sizes[-2]:.1f} times the next"
    return title


def write_graphml(largest: Largest, path: Path) -> None:
    """Write the tree as GraphML, with all columns and the position of each node."""
    document = ElementTree.Element("graphml", xmlns="http://graphml.graphdrawing.org/xmlns")
    graph = ElementTree.Element("graph", edgedefault="directed")
    declared: dict[str, str] = {}

    def add(kind: str, place: Mapping[str, str], data: Mapping[str, object]) -> None:
        element = ElementTree.SubElement(graph, kind, dict(place))
        for name, value in data.items():
            key = declared.get(name)
            if key is None:
                key = declared[name] = f"d{len(declared)}"
                known = {"id": key, "for": kind, "attr.name": name}
                known["attr.type"] = _GRAPHML_TYPES[type(value)]
                ElementTree.SubElement(document, "key", known)
            ElementTree.SubElement(element, "data", key=key).text = str(value)

    root = balanced_tree(len(largest.processes))
    for node in () if root is None else root.walk():
        process = largest.processes[node.item]
        pid = str(process["pid"])
        known = {name: value for name, value in process.items() if value is not None}
        add("node", {"id": pid}, known | {"x": node.x, "y": -float(node.depth)})
        for side, child in (("smaller", node.left), ("larger", node.right)):
            if child is not None:
                below = str(largest.processes[child.item]["pid"])
                add("edge", {"source": pid, "target": below}, {"side": side})
    document.append(graph)
    ElementTree.indent(document)
    ElementTree.ElementTree(document).write(path, encoding="utf-8", xml_declaration=True)


def write_latex(largest: Largest, path: Path) -> None:
    """Write the tree as a picture for LaTeX, which needs the package TikZ."""
    root = balanced_tree(len(largest.processes))
    nodes = [] if root is None else list(root.walk())
    lines = [
        f"% {_title(largest).translate(_LATEX_SPECIAL)}",
        r"\begin{tikzpicture}[every node/.style={align=center, font=\scriptsize}, "
        r"x=22mm, y=18mm]",
    ]
    for node in nodes:
        words = _label(largest, node).replace("…", "...").translate(_LATEX_SPECIAL)
        text = words.replace("\n", r"\\ ")
        lines.append(rf"  \node (n{node.item}) at ({node.x:.3f},{-node.depth}) {{{text}}};")
    lines += [
        rf"  \draw (n{node.item}) -- (n{child.item});" for node in nodes for child in node.children
    ]
    path.write_text("\n".join([*lines, r"\end{tikzpicture}", ""]), encoding="utf-8")


def write_text(largest: Largest, path: Path) -> None:
    """Write the tree as text: the largest process first, each indented by its depth."""
    root = balanced_tree(len(largest.processes))
    nodes = [] if root is None else list(root.walk())
    lines = [_title(largest)]
    for node in reversed(nodes):
        size, name, pid = _label_words(largest, node)
        lines.append(f"{'    ' * node.depth}{size}  {name}  {pid}")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
