"""The short names of groups, as levers are called. Pure.

A lever is called by its kind and the last part of its group's name, such as ``limit:hog0``. Where two
groups of a node end alike, as many parts are taken as tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stallward.agent.sample import Sample


def names_in(sample: Sample) -> tuple[str, ...]:
    """The names of all groups and process trees of a sample."""
    protected = [one.group for one in sample.applications] or [sample.protected]
    return tuple(one.name for one in (sample.zone, *protected, *sample.slots))


def endings(name: str) -> list[str]:
    """The last part of a name, its last two, and so on up to the whole name."""
    parts = name.split("/")
    return ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """The shortest ending of each name that no other name has; the whole name where there is none.

    Args:
        names: The names of groups and process trees, each once.
    """
    return tuple(
        next(
            (
                ending
                for ending in endings(name)
                if not any(ending in endings(other) for other in names if other != name)
            ),
            name,
        )
        for name in names
    )


def meant_by(short: str, names: Iterable[str]) -> frozenset[str]:
    """Which of a node's groups a short name means: the one that is called so, or that ends so.

    Args:
        short: A short name, or a whole one.
        names: The names of all groups and process trees of the node.
    """
    listed = frozenset(names)
    if short in listed:
        return frozenset({short})
    return frozenset(name for name in listed if short in endings(name))
