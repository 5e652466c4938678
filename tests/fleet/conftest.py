"""Three nodes, with services of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from experiment_node import Node
from service_without_loop import Service

from stallward.fleet import Fleet

NAMES = ("a", "b", "c")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., dict[str, Node]]]:
    """Makes the nodes; those that are named run no experiments."""
    made: dict[str, tuple[Service, Node]] = {}

    def making(*, without_folder: tuple[str, ...] = ()) -> dict[str, Node]:
        services = {}
        for name in NAMES:
            folder = tmp_path / name
            folder.mkdir()
            experiments = None if name in without_folder else folder / "experiments"
            services[name] = Service(folder, experiments=experiments)
        for name, service in services.items():
            made[name] = (service, Node(service))
        return {name: node for name, (_, node) in made.items()}

    yield making
    for service, node in made.values():
        node.end()
        service.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet({name: tmp_path / name / "s" for name in NAMES}) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The file that names them."""
    path = tmp_path / "nodes.toml"
    lines = [f'{name} = "{tmp_path / name / "s"}"' for name in NAMES]
    path.write_text("\n".join(["[nodes]", *lines]))
    return str(path)
