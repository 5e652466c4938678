"""The applications of the next verdict are served and answer, and what runs beside them works."""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest
from real_programs import assert_it_answers_and_works
from workload_servers import needed, serving

from stallward.env.recording.split import load_split
from stallward.env.scenario.file import find_scenarios, parse_scenario
from stallward.research.unseen import bind
from stallward.research.verdict.plan import load_verdict_plan

FOLDER = Path(str(resources.files("stallward.research.unseen")))
SMALLER = {
    "beanstalkd-7zip": (
        ('"300000"', '"2000"'),
        ("peek 300001", "peek 2001"),
        ('"30000"', '"200"'),
        ('"96"', '"4"'),
    ),
    "bind-pari": (('"450000"', '"2000"'), ("900, 900", "90, 90")),
    "influxdb-glpk": (('"300"', '"10"'), ("n := 450", "n := 120")),
    "lisp-maxima": (('"500000"', '"5000"'), ("^7", "^4")),
    "perl-graphviz": (('"240000"', '"5000"'), ("-g250,250", "-g13,13")),
    "prolog-jq": (('"500000"', '"5000"'), ("700000", "70000")),
}


@pytest.mark.live
@pytest.mark.reaches
@pytest.mark.parametrize("name", SMALLER)
def test_unseen_programs_answer_and_work(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    file = FOLDER / f"{name}.toml"
    assert_it_answers_and_works(file, SMALLER[name], (3.0, 25.0), tmp_path, cache)


@pytest.mark.parametrize("name", ["plan", "stated"])
def test_a_plan_has_all_of_them(name: str) -> None:
    plan = load_verdict_plan(FOLDER / f"{name}.toml")
    assert {Path(one).stem for one in plan.scenarios} == set(SMALLER)


def test_nothing_of_them_is_in_a_scenario_that_ships() -> None:
    split = load_split()
    shipped = {one.application for one in find_scenarios()} | set(split.application)
    kinds = {group.kind for one in find_scenarios() for group in one.background}
    for name in SMALLER:
        scenario = parse_scenario(FOLDER / f"{name}.toml")
        assert scenario.application not in shipped
        assert not {group.kind for group in scenario.background} & (kinds | set(split.background))


def test_a_name_server_is_ready_once_it_knows_the_zone_and_not_while_it_fails() -> None:
    """BIND listens before it has read the zone, and fails each question then."""
    codes = [2, 2, 0]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while codes:
                with server.accept()[0] as client:
                    if not client.recv(100):  # somebody who asks only whether it listens
                        continue
                    code = codes.pop(0)
                    found = int(code == 0)
                    client.sendall(bytes((0, 12, 0, 1, 0x84, code, 0, 1, 0, found, 0, 0, 0, 0)))

        with ThreadPoolExecutor(1) as pool:
            answering = pool.submit(answer)
            assert bind.has_zone(server.getsockname()[1])
            answering.result(timeout=10.0)


@pytest.mark.parametrize(
    ("script", "program", "package"),
    [
        ("basket.pl", "perl", "perl"),
        ("family.pl", "swipl", "swi-prolog-nox"),
        ("stock.lisp", "sbcl", "sbcl"),
    ],
)
def test_a_script_answers_each_line(
    script: str, program: str, package: str, tmp_path: Path
) -> None:
    needed(program, package)
    path = tmp_path / "service.sock"
    argv = (sys.executable, "-m", "stallward.research.unseen.script", script)
    with (
        serving(path, *argv, "--socket", str(path), "--size", "300", patience_s=60.0),
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(path))
        replies = client.makefile("rb")
        totals = []
        for line in (b"7\n", b"299\n", b"7 299\n"):
            client.sendall(line)
            totals.append(int(replies.readline().split()[1]))
    assert totals[0] + totals[1] == totals[2]
    assert len(set(totals)) == 3
