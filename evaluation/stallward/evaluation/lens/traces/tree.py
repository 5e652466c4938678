"""Processes as a balanced binary tree, ordered by what they take, as Memball draws them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
