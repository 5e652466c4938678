"""The tree of commands: a line of each list, and where the command is."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.ctl import ctl
from stallward.actuator.cli.lazy import add_command
from stallward.evaluation.cli.plugins import PluggedGroup, stand_in


def _print_version(requested: bool) -> None:
    if requested:
        output.line(version("stallward"))
        raise typer.Exit


app = typer.Typer(
    name="stallward",
    cls=PluggedGroup,
    help=(
        "Keeps a latency-critical application fast on a machine whose memory other work wants "
        "too. Start with `stallward demo`."
    ),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def stallward(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


add_command(
    app,
    "stallward.evaluation.cli.demo:demo",
    "Do everything once, from fit to report.",
    "stallward demo --out build/demo",
)
add_command(
    app,
    "stallward.evaluation.cli.record:record",
    "Record one run under one controller (needs root).",
    "stallward record detector-anon --arm none --out rec/none",
)

catalogue = typer.Typer(
    help="Keep many recordings as one Parquet dataset, by node and day.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: stallward catalogue add recordings --to s3://bucket/recordings",
)
add_command(
    catalogue,
    "stallward.evaluation.cli.catalogue.commands:add",
    "Add recordings to a catalogue.",
    "stallward catalogue add rec/edge-7 --to s3://bucket/recordings",
)
add_command(
    catalogue,
    "stallward.evaluation.cli.catalogue.commands:show",
    "Show what is in a catalogue, by node, scenario, condition and arm.",
    "stallward catalogue show s3://bucket/recordings --days 2026-11-01..",
)
app.add_typer(catalogue, name="catalogue")

add_command(
    app,
    "stallward.evaluation.cli.learn:fit",
    "Fit the twin to recordings.",
    "stallward fit recordings --out build/twins",
)
add_command(
    app,
    "stallward.evaluation.cli.learn:train",
    "Train a PPO policy on fitted twins (torch, on the CPU).",
    "stallward train --twin build/twins/detector-anon.json --out build/run",
)
stand_in(app, "search")
add_command(
    app,
    "stallward.evaluation.cli.learn:tune",
    "Search the thresholds of a rule on fitted twins (CMA-ES).",
    "stallward tune rule --out build/rule.toml",
)
add_command(
    app,
    "stallward.evaluation.cli.learn:export",
    "Export a trained policy as one ONNX file.",
    "stallward export build/run --out build/policy.onnx",
)
add_command(
    app,
    "stallward.actuator.cli.init:init",
    "Look at this node, and write a configuration to begin with.",
    "stallward init --protect nginx.service --background backup.service",
)
add_command(
    app,
    "stallward.actuator.cli.serve:serve",
    "Run the actuator daemon in the foreground (needs root).",
    "stallward serve --config /etc/stallward/stallward.toml",
)
add_command(
    app,
    "stallward.actuator.cli.serve:restore",
    "Put back what a dead daemon left changed.",
    "stallward restore --config /etc/stallward/stallward.toml",
)
add_command(
    app,
    "stallward.actuator.cli.unit.command:unit",
    "Print or install the systemd unit for this configuration.",
    "stallward unit --config /etc/stallward/stallward.toml --install",
)
add_command(
    app,
    "stallward.actuator.cli.doctor:doctor",
    "Say what works on this machine and what does not.",
    "stallward doctor --config /etc/stallward/stallward.toml",
)
add_command(
    app,
    "stallward.evaluation.cli.assess:assess",
    "Say whether it would help on this node.",
    "stallward assess /var/lib/stallward/recording",
)
stand_in(ctl, "ctl.fleet", "ctl.rollout", "ctl.recall")
app.add_typer(ctl, name="ctl", cls=PluggedGroup)
add_command(
    app,
    "stallward.actuator.cli.top.command:top",
    "Show latency, stalls, groups and decisions of a node.",
    "stallward top --replay /var/lib/stallward/recording --at 3600",
)
add_command(
    app,
    "stallward.evaluation.cli.compare:compare",
    "Compare controllers in randomised blocks.",
    "stallward compare detector-anon --arms none,latd,ppo --blocks 5 --out cmp",
)

ab = typer.Typer(
    help="Compare two controllers on a node that serves.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: stallward ab start --treatment default --pairs 20",
)
add_command(
    ab,
    "stallward.evaluation.cli.ab_plan:plan",
    "Say how many pairs of blocks show an effect on a node.",
    "stallward ab plan recordings/node --effect -0.1",
)
add_command(
    ab,
    "stallward.evaluation.cli.ab:start",
    "Compare two controllers on the node, in pairs of blocks whose order is drawn.",
    "stallward ab start --treatment november --pairs 20",
)
add_command(
    ab,
    "stallward.evaluation.cli.ab:status",
    "Say where the experiment is, and which blocks were lost.",
    "stallward ab status",
)
add_command(
    ab,
    "stallward.evaluation.cli.ab:stop",
    "Stop the experiment, and put back what was in force before.",
    "stallward ab stop",
)
add_command(
    ab,
    "stallward.evaluation.cli.ab:report",
    "Say what the experiment showed, also while it runs.",
    "stallward ab report --json",
)
app.add_typer(ab, name="ab")

stand_in(app, "experiment")
stand_in(app, "oracle", "border", "capacity", "fidelity", "verdict", "ope", "explain", "minari")
stand_in(app, "workingset", "trace", "plot", "resident", "profile")
stand_in(app, "bench")
add_command(
    app,
    "stallward.evaluation.cli.arms:arms",
    "List the arms to compare, and their arguments.",
    "stallward arms --json",
)
add_command(
    app,
    "stallward.evaluation.cli.scenarios:scenarios",
    "List the shipped scenarios, with background, target and part.",
    "stallward scenarios",
)

describe = typer.Typer(
    cls=PluggedGroup,
    help="Print a reference page, as Markdown.",
    no_args_is_help=True,
)
add_command(
    describe,
    "stallward.evaluation.cli.describe:signals",
    "List every signal: unit, meaning, source on each kind of node, and cost.",
    "stallward describe signals",
)
add_command(
    describe,
    "stallward.evaluation.cli.describe:observation",
    "List the features of the observation, and the actions.",
    "stallward describe observation",
)
stand_in(describe, "describe.trace")
app.add_typer(describe, name="describe")
