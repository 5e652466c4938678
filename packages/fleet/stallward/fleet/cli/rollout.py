"""``stallward ctl rollout`` and ``recall``: a policy to many nodes in waves, and back."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Json
from stallward.actuator.policies.named_controller import digest_of, specification_of
from stallward.agent.errors import PolicyError
from stallward.fleet.cli.connect import connect_fleet
from stallward.fleet.cli.rollout_text import (
    count_rows,
    left_lines,
    outcome_line,
    progress_values,
    wave_rows,
)
from stallward.fleet.connections import Fleet
from stallward.fleet.rollout.node_calls import PushedPolicy, check
from stallward.fleet.rollout.plan import RolloutPlan, WaveRules, drawn_order, parse_waves, share_of
from stallward.fleet.rollout.progress import NodeState, Outcome
from stallward.fleet.rollout.rollout import Rollout, digest

_Nodes = Annotated[Path, typer.Option(help="The file that says where the nodes are.")]


def rollout(
    policy: Annotated[
        str, typer.Argument(help="A policy file on this machine, or controller:NAME[:key=value].")
    ],
    nodes: _Nodes,
    state: Annotated[
        Path | None,
        typer.Option(
            help="The record of what happened, by which it continues [rollout-DIGEST.jsonl, here]."
        ),
    ] = None,
    waves: Annotated[
        str, typer.Option(help="Nodes that have it after each wave, or shares of them.")
    ] = "1,5%,25%,100%",
    watch: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="Seconds to watch each wave.")
    ] = 1800.0,
    look: Annotated[
        float, typer.Option(min=0.05, max=600.0, help="Seconds between two looks at a node.")
    ] = 10.0,
    margin: Annotated[
        str, typer.Option(help="By how much less often the target may be kept.")
    ] = "2%",
    guard_margin: Annotated[
        str, typer.Option(help="By how much more often the guard may intervene.")
    ] = "25%",
    fail: Annotated[
        str, typer.Option(help="The share of a wave's nodes on which it may fail.")
    ] = "5%",
    skip: Annotated[
        str, typer.Option(help="The share of nodes that may be left out; 0% to stop at once.")
    ] = "5%",
    name: Annotated[str, typer.Option(help="Its name on the nodes [that of the file].")] = "",
    seed: Annotated[int | None, typer.Option(help="Draws the order [drawn].")] = None,
    without_requests: Annotated[
        bool, typer.Option("--without-requests", help="Go on if nobody had any requests.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask all nodes, and change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give a policy to many nodes, wave by wave.

    After each wave its nodes are compared with those not switched yet and with themselves before;
    if it is bad, all go back. The same command goes on after an interruption. The exit code is 0
    if it decides on all nodes.
    """
    specification = specification_of(policy)
    pushed = None if specification is not None else _read(Path(policy), name)
    sha256 = digest_of(specification) if specification is not None else ""
    sha256 = digest(pushed.content) if pushed is not None else sha256
    with connect_fleet(nodes) as fleet:
        plan = RolloutPlan(
            policy=policy if pushed is None else sha256,
            name="" if pushed is None else pushed.name,
            sha256=sha256,
            nodes=drawn_order(fleet.clients, secrets.randbits(32) if seed is None else seed),
            waves=parse_waves(waves, len(fleet.clients)),
            rules=WaveRules(
                watch_s=watch,
                look_s=look,
                margin=share_of(margin),
                guard_margin=share_of(guard_margin),
                failed_share=share_of(fail),
                skipped_share=share_of(skip),
                need_requests=not without_requests,
            ),
        )
        if dry_run:
            _try(fleet, plan, push=pushed is not None)
            return
        path = state or Path(f"rollout-{sha256[:12]}.jsonl")
        with Rollout(path, plan) as going:
            _run(going, fleet, pushed, path, as_json=as_json)


def recall(
    state: Annotated[Path, typer.Option(help="The file that ctl rollout wrote.")],
    nodes: _Nodes,
    as_json: Json = False,
) -> None:
    """Put all nodes of a rollout back on what decided before.

    Nodes that do not answer are named; the same command tries them again.
    """
    with connect_fleet(nodes) as fleet, Rollout(state) as going:
        if not going.progress.returning:
            going.recall()
        _run(going, fleet, None, state, as_json=as_json)


def _read(file: Path, name: str) -> PushedPolicy:
    """The policy that is to be sent.

    Raises:
        PolicyError: If it cannot be read.
    """
    try:
        return PushedPolicy(content=file.read_bytes(), name=name or file.stem)
    except OSError as error:
        raise PolicyError(
            f"{file} cannot be read ({error.strerror}).",
            next_step="Name a policy file, or a controller as controller:NAME.",
        ) from error


def _run(
    going: Rollout, fleet: Fleet, pushed: PushedPolicy | None, path: Path, *, as_json: bool
) -> None:
    """Go on, and say how it ended.

    Raises:
        typer.Exit: If not all nodes are where they should be.
    """
    try:
        step = going.run(fleet, pushed, output.note)
    except KeyboardInterrupt:
        output.note(
            f"Interrupted; {path} holds where it stands. The same command goes on, and "
            f"`stallward ctl recall --state {path}` undoes it."
        )
        raise
    progress = going.progress
    if as_json:
        output.print_json(progress_values(progress, step))
    else:
        output.table(("nodes", "state"), count_rows(progress))
        for text in (outcome_line(step), *left_lines(progress, path)):
            output.line(text)
    recalled = step.outcome is Outcome.RETURNED and not progress.verdicts_bad
    done = step.outcome is Outcome.COMPLETE or recalled
    left = progress.in_state(NodeState.NOT_REACHED, NodeState.UNSURE)
    off = () if recalled else progress.in_state(NodeState.BACK)
    if not done or left or off:
        raise typer.Exit(1)


def _try(fleet: Fleet, plan: RolloutPlan, *, push: bool) -> None:
    """Say what a rollout would do.

    Raises:
        typer.Exit: If more nodes refuse than may be left out.
    """
    answers = fleet.ask(lambda _name, client: check(client, push=push))
    output.table(("wave", "nodes", "in all", "first"), wave_rows(plan))
    for name, error in answers.failed.items():
        output.line(f"{name} cannot be switched now: {error}")
    output.line(
        f"{len(answers.given)} of {len(plan.nodes)} nodes can be switched; {plan.most_skipped} "
        f"may be left out; it takes at least {output.duration(plan.least_s)}"
    )
    if len(answers.failed) > plan.most_skipped:
        raise typer.Exit(1)
