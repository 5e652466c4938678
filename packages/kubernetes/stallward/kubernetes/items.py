"""The items of a JSON list, one at a time, without what nobody here reads.

What tenants write fills a list of pods: a thousand variables of a container, megabytes of labels,
brackets nested ten thousand deep. So a list is read as a stream. Arrays that nobody uses, and what
is nested deeper than anything that is used, are dropped before anything is parsed, and an item that
cannot be read costs that item alone.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from stallward.kubernetes.errors import PodsError

Read = Callable[[int], bytes]
"""Reads at most so many bytes; none at the end."""

MOST_ITEM_BYTES: Final = 1 << 20
"""The most of one item that is parsed, which takes some 13 times its size meanwhile. The API allows
256 KiB of annotations."""
MOST_ITEMS: Final = 20_000
_MOST_AROUND_BYTES: Final = 1 << 20
_MOST_TEXT_BYTES: Final = 16 << 20
"""A pod has 1.5 MiB at most where the API server keeps it, and several times that as JSON."""
_CHUNK_BYTES: Final = 1 << 16
_SAID: Final = 80

_DEEPEST: Final = 6
"""How deep objects that are used lie in an item: ``spec.containers[].resources.limits``."""
_ARRAYS_AT: Final = 3
_ARRAY: Final = re.compile(
    rb'"(?:containers|initContainers|containerStatuses|initContainerStatuses|ownerReferences)"'
    rb"\s*+:\s*+\Z"
)
"""The key of an array that is used, and so is kept at that depth."""
_IN_LIST: Final = 2
_IN_EVENT: Final = 1
"""How deep an item itself lies."""

_DROPPED: Final = b"false"
"""What stands for what is dropped: nothing that is used may be that, so it is not like absent."""

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT: Final = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
"""Everything up to the next bracket, or to a string that goes on in the next piece."""
_LEAVES: Final = re.compile(
    rb'(?:[^"\[\]{}]++|' + _STRING + rb'|\{(?:[^"\[\]{}]++|' + _STRING + rb")*+\})*+", re.DOTALL
)
"""The same over objects in which there is no other: it is faster over what is dropped."""
_SCALAR: Final = re.compile(_STRING + rb"|[^\s,]++", re.DOTALL)
_ITEMS_KEY: Final = re.compile(rb'"items"\s*+:\s*+\Z')
_MOST_KEY_BYTES: Final = 64


class Items:
    """The items of a list of pods; iterate once.

    An item that cannot be read is a :class:`PodsError` that says why.

    Args:
        read: Reads the list.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self.around: Any = None
        """What stands around the items, once they have been read: its ``items`` are empty."""

    def __iter__(self) -> Iterator[Any]:
        """Read the items.

        Raises:
            PodsError: If there is no list, or it has no end.
        """
        for count, item in enumerate(self._items()):
            if count == MOST_ITEMS:
                raise PodsError(f"The list has more than {MOST_ITEMS} pods.")
            yield item
        if not isinstance(self.around, dict) or self.around.get("items", 0) not in ([], None):
            raise PodsError(
                "There is no list of pods.",
                next_step="It must be JSON with `items`, as `kubectl get pods -o json` prints it.",
            )

    def _items(self) -> Iterator[Any]:
        around, item, inside = bytearray(), bytearray(), False
        for piece, depth in _pieces(self._read, _IN_LIST):
            if not inside:
                inside = piece == b"[" and depth == _IN_LIST and bool(_ITEMS_KEY.search(around))
                around += piece
                if len(around) > _MOST_AROUND_BYTES:
                    raise PodsError("There is too much around the items of the list of pods.")
                continue
            if depth < _IN_LIST:
                yield from _scalars(item)
                inside = False
                around += piece
            elif depth == _IN_LIST + 1 and piece == b"{":
                yield from _scalars(item)
                item = bytearray(piece)
            elif len(item) <= MOST_ITEM_BYTES:
                item += piece
            if depth == _IN_LIST and piece == b"}":
                yield _parsed_item(item)
                item = bytearray()
        self.around = parsed(bytes(around))


def read_event(line: bytes) -> Any:
    """Read one event of a watch, without what nobody uses of its object.

    Raises:
        PodsError: If it is no JSON.
    """
    pieces = [line, b""]
    return parsed(b"".join(piece for piece, _ in _pieces(lambda _: pieces.pop(0), _IN_EVENT)))


def parsed(content: bytes) -> Any:
    """Parse JSON that was sent.

    Raises:
        PodsError: If it is none.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PodsError(f"What was sent is no JSON: {content[:_SAID]!r}.") from error


def _parsed_item(item: bytearray) -> Any:
    if len(item) > MOST_ITEM_BYTES:
        return PodsError(f"it has more than {MOST_ITEM_BYTES >> 20} MiB of what is looked at")
    try:
        return parsed(bytes(item))
    except PodsError as error:
        return error


def _scalars(between: bytearray) -> Iterator[Any]:
    """Items that are neither object nor array, e.g. ``null``."""
    for found in _SCALAR.finditer(between):
        yield PodsError(f"{found[0][:_SAID].decode('utf-8', 'replace')} is no pod")


class _Depth:
    """How deep a place in JSON is, and whether it is dropped.

    Args:
        level: How deep an item lies.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        self._dropped = 0
        self.now = 0

    @property
    def dropped(self) -> bool:
        """Whether what stands here is dropped."""
        return self._dropped > 0

    def pass_bracket(self, mark: bytes, before: bytes) -> bytes:
        """Go past a bracket; return what stands for it.

        Args:
            mark: The bracket.
            before: The end of what stands before it.
        """
        if mark not in b"{[":
            self.now -= 1
            if not self._dropped:
                return mark
            if self.now < self._dropped:
                self._dropped = 0
            return b""
        self.now += 1
        if self._dropped:
            return b""
        within = self.now - self._level
        if mark == b"{":
            keeps = within <= _DEEPEST
        else:
            keeps = within <= 0 or (within == _ARRAYS_AT and bool(_ARRAY.search(before)))
        if not keeps:
            self._dropped = self.now
        return mark if keeps else _DROPPED


def _pieces(read: Read, level: int) -> Iterator[tuple[bytes, int]]:
    """Give JSON back in pieces without what is too deep, each with the depth behind it.

    A bracket is a piece of its own. ``false`` stands for what is dropped.

    Args:
        read: Reads the JSON.
        level: How deep an item lies in it.

    Raises:
        PodsError: If it ends too early.
    """
    rest, before, depth = b"", b"", _Depth(level)
    while True:
        more = read(max(_CHUNK_BYTES, len(rest)))  # a long text is not looked at again and again
        text, at = rest + more, 0
        while at < len(text):
            flat = (_LEAVES if depth.dropped else _FLAT).match(text, at)
            end = at if flat is None else flat.end()
            if end > at and not depth.dropped:
                yield text[at:end], depth.now
                before = (before + text[max(at, end - _MOST_KEY_BYTES) : end])[-_MOST_KEY_BYTES:]
            at, mark = end, text[end : end + 1]
            if mark in b'"':  # the end of a string, or of the text, is not here yet
                break
            at += 1
            piece, before = depth.pass_bracket(mark, before), b""
            if piece:
                yield piece, depth.now
        rest = text[at:]
        if len(rest) > _MOST_TEXT_BYTES:
            raise PodsError("A text in the list of pods has no end.")
        if not more:
            if rest or depth.now:
                raise PodsError("The list of pods is cut short.")
            return
