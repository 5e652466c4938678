"""``stallward bench fleet``, ``rollout`` and ``scrape``: many simulated nodes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.benchmarks.cli.text import print_figures


def fleet(
    nodes: Annotated[int, typer.Option(min=2, max=4096, help="Number of nodes.")] = 200,
    pairs: Annotated[int, typer.Option(min=1, max=100, help="Pairs of blocks on each.")] = 1,
    twin: Annotated[str, typer.Option(help="Fitted twin, file or name.")] = "detector-anon",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Watch and randomise many simulated nodes from one client, and count what is lost.

    Each has a service and a twin of its own. The exit code is 1 if a lost tick was not counted.
    """
    from stallward.benchmarks.fleet.bench import MEANINGS, FleetSettings, bench_fleet  # noqa: PLC0415
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

    settings = FleetSettings(nodes=nodes, pairs=pairs, twin=twin, seed=seed)
    with output.progress("bench fleet") as report:
        figures = bench_fleet(settings, report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)
    if figures["ticks_uncounted"]:
        raise typer.Exit(1)


def rollout(
    nodes: Annotated[int, typer.Option(min=8, max=4096, help="Number of nodes.")] = 1000,
    waves: Annotated[
        str, typer.Option(help="Nodes that have it after each wave, or shares of them.")
    ] = "1,5%,25%,100%",
    watch: Annotated[int, typer.Option(min=12, max=1000, help="Ticks to watch a wave.")] = 40,
    period: Annotated[
        float, typer.Option(min=0.05, max=60.0, help="Seconds between two ticks of a node.")
    ] = 2.5,
    twin: Annotated[str, typer.Option(help="Fitted twin, file or name.")] = "detector-anon",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Roll a bad and a good policy out to many simulated nodes, and count each of them.

    The exit code is 1 if a node was not counted as what it is, or the bad policy went on.
    """
    from stallward.benchmarks.fleet.rollouts import (  # noqa: PLC0415
        MEANINGS,
        RolloutSettings,
        bench_rollout,
    )
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

    settings = RolloutSettings(
        nodes=nodes, waves=waves, watch_ticks=watch, period_s=period, twin=twin, seed=seed
    )
    with output.progress("bench rollout") as report:
        figures = bench_rollout(settings, report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)
    uncounted = figures["bad_uncounted"] or figures["good_uncounted"]
    if uncounted or figures["bad_waves"] != 1.0:
        raise typer.Exit(1)


def scrape(
    nodes: Annotated[int, typer.Option(min=1, max=4096, help="Number of nodes.")] = 1000,
    seconds: Annotated[float, typer.Option(min=30.0, max=3600.0, help="How long.")] = 180.0,
    interval: Annotated[
        int, typer.Option(min=1, max=300, help="Seconds between two scrapes of a node.")
    ] = 15,
    port: Annotated[
        int, typer.Option(min=1024, max=60_000, help="The first port of the nodes.")
    ] = 21_000,
    rules: Annotated[Path | None, typer.Option(help="Recording rules to evaluate.")] = None,
    as_json: Json = False,
) -> None:
    """Let a Prometheus of this machine scrape many simulated nodes, and measure it.

    The program `prometheus` must be installed.
    """
    from stallward.benchmarks.fleet.scraping import (  # noqa: PLC0415
        MEANINGS,
        ScrapeSettings,
        bench_scrape,
    )
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

    settings = ScrapeSettings(
        nodes=nodes, length_s=seconds, interval_s=interval, first_port=port, rules=rules
    )
    with output.progress("bench scrape") as report:
        figures = bench_scrape(settings, report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)
