"""The tree of commands. Their modules must import quickly: functions import what they use."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from stallward.actuator.cli import node, output
from stallward.actuator.cli.ctl import ctl
from stallward.actuator.cli.init import init
from stallward.actuator.cli.top.command import top
from stallward.evaluation.cli import (
    ab,
    assess,
    border,
    capacity,
    compare,
    learn,
    record,
    show,
    verdict,
)
from stallward.evaluation.cli.catalogue import commands as catalogue
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


app.command(epilog="Example: stallward demo --out build/demo")(compare.demo)
app.command(epilog="Example: stallward record detector-anon --arm none --out rec/none")(
    record.record
)
app.add_typer(catalogue.app, name="catalogue")
app.command(epilog="Example: stallward fit recordings --out build/twins")(learn.fit)
app.command(
    epilog="Example: stallward train --twin build/twins/detector-anon.json --out build/run"
)(learn.train)
stand_in(app, "search")
app.command(epilog="Example: stallward tune rule --out build/rule.toml")(learn.tune)
app.command(epilog="Example: stallward export build/run --out build/policy.onnx")(learn.export)
app.command(epilog="Example: stallward init --protect nginx.service --background backup.service")(
    init
)
app.command(epilog="Example: stallward serve --config /etc/stallward/stallward.toml")(node.serve)
app.command(epilog="Example: stallward restore --config /etc/stallward/stallward.toml")(
    node.restore
)
app.command(
    "unit",
    epilog="Example: stallward unit --config /etc/stallward/stallward.toml --install",
)(node.systemd_unit)
app.command(epilog="Example: stallward doctor --config /etc/stallward/stallward.toml")(node.doctor)
app.command(epilog="Example: stallward assess /var/lib/stallward/recording")(assess.assess)
stand_in(ctl, "ctl.fleet", "ctl.rollout", "ctl.recall")
app.add_typer(ctl, name="ctl", cls=PluggedGroup)
app.command(
    "top", epilog="Example: stallward top --replay /var/lib/stallward/recording --at 3600"
)(top)
app.command(
    epilog="Example: stallward compare detector-anon --arms none,latd,ppo --blocks 5 --out cmp"
)(compare.compare)
app.add_typer(ab.app, name="ab")
stand_in(app, "experiment")
stand_in(app, "oracle")
app.command(epilog="Example: stallward border memcached-zstd")(border.border)
app.command(epilog="Example: stallward capacity memcached-zstd --arms none,partition")(
    capacity.capacity
)
app.command(epilog="Example: stallward fidelity recordings")(compare.fidelity)
app.command("verdict", epilog="Example: stallward verdict --out build/verdict")(verdict.verdict)
stand_in(app, "ope", "explain", "minari")
stand_in(app, "workingset", "trace", "plot", "resident", "profile")
stand_in(app, "bench")
app.command(epilog="Example: stallward arms --json")(show.arms)
app.command(epilog="Example: stallward scenarios")(show.scenarios)
app.add_typer(show.describe, name="describe")
