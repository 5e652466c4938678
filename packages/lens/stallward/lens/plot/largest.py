"""The picture of the largest processes, and their tree as GraphML, LaTeX and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure

from stallward.lens.errors import TraceFileError
from stallward.lens.plot.file import TraceFile
from stallward.lens.plot.picture import COLOURS
from stallward.lens.trace.kinds import Key
from stallward.lens.trace.tracers.largest import COLUMN_OF_KEY

# ---------- Processes as a balanced binary tree, ordered by what they take, as Memball draws them

_SEPARATION = 1.0
"""How far two nodes of the same depth are apart at least."""


@dataclass(slots=True)
class Node:
    """A node of the tree."""

    item: int
    """The place of the process in the order; 0 for the smallest."""
    depth: int
    left: Node | None = None
    """The smaller ones."""
    right: Node | None = None
    """The larger ones."""
    x: float = 0.0

    def walk(self) -> Iterator[Node]:
        """This node and all below it, by their order."""
        if self.left is not None:
            yield from self.left.walk()
        yield self
        if self.right is not None:
            yield from self.right.walk()

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes right below."""
        return tuple(child for child in (self.left, self.right) if child is not None)


def balanced_tree(count: int) -> Node | None:
    """The search tree of least depth over ``count`` ordered items, laid out to be drawn.

    Memball inserts processes into a red-black tree one by one. All are known here, so the tree
    can be balanced as well as any.
    """
    root = _balanced(0, count, 0)
    if root is not None:
        tidy(root)
    return root


def _balanced(start: int, end: int, depth: int) -> Node | None:
    if start >= end:
        return None
    middle = (start + end) // 2
    return Node(
        item=middle,
        depth=depth,
        left=_balanced(start, middle, depth + 1),
        right=_balanced(middle + 1, end, depth + 1),
    )


def tidy(root: Node) -> None:
    """Set the positions of all nodes by the rules of Reingold and Tilford (1981).

    Nodes of one depth are on one line, a left child is left of its parent and a right child right
    of it, a parent is above the middle of its children, a tree and its mirror image are drawn as
    mirror images, and equal subtrees alike. The tree is as narrow as these rules allow.
    """
    offsets: dict[int, float] = {}
    _contours(root, offsets)
    _settle(root, 0.0, offsets)
    leftmost = min(node.x for node in root.walk())
    for node in root.walk():
        node.x -= leftmost


Contour = list[float]
"""For each depth from the root of a subtree on, its outermost position there."""


def _contours(node: Node, offsets: dict[int, float]) -> tuple[Contour, Contour]:
    """Find how far each child is from its parent; return the left and the right contour."""
    sides = [None if c is None else _contours(c, offsets) for c in (node.left, node.right)]
    left, right = sides
    apart = _SEPARATION
    if left is not None and right is not None:
        overlaps = (a - b for a, b in zip(left[1], right[0], strict=False))
        apart = max(overlaps) + _SEPARATION
    lefts: list[Contour] = []
    rights: list[Contour] = []
    for child, contours, sign in ((node.left, left, -1.0), (node.right, right, 1.0)):
        if child is not None and contours is not None:
            offset = offsets[child.item] = sign * apart / 2.0
            lefts.append([x + offset for x in contours[0]])
            rights.append([x + offset for x in contours[1]])
    return [0.0, *_outermost(lefts)], [0.0, *_outermost(rights[::-1])]


def _outermost(contours: Sequence[Contour]) -> Contour:
    """The first contour, and below its end what the second one has."""
    joined: Contour = []
    for contour in contours:
        joined += contour[len(joined) :]
    return joined


def _settle(node: Node, x: float, offsets: dict[int, float]) -> None:
    node.x = x
    for child in node.children:
        _settle(child, x + offsets[child.item], offsets)


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
    rows = trace.columns.filter(seconds == wanted).to_pylist()
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
