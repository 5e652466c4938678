"""``stallward experiment``: experiments of published documents, repeated on this machine."""

from __future__ import annotations

import typer

from stallward.actuator.cli.lazy import add_command

app = typer.Typer(
    help="Repeat published experiments on this machine (needs root).",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: stallward experiment swap-assign --part case-study",
)
add_command(
    app,
    "stallward.papers.experiment_commands:contention",
    "Measure how much applications suffer from each other.",
    "stallward experiment contention detector-anon --seconds 20",
)
add_command(
    app,
    "stallward.papers.experiment_commands:swap_assign",
    'Repeat the experiments of "Memory Contention Aware Swap Space Management" (NTUST 2019).',
    "stallward experiment swap-assign --minutes 10",
)
add_command(
    app,
    "stallward.papers.experiment_commands:compile_sweep",
    "Repeat the compilations of a thesis on working sets (Birkbeck 2011).",
    "stallward experiment compile --sizes 48,64,96,192 --minutes 10",
    name="compile",
)
add_command(
    app,
    "stallward.papers.experiment_commands:latd",
    "Repeat the experiments of the latd thesis (UNC Charlotte 2019).",
    "stallward experiment latd --part scenarios --repeats 1",
)
add_command(
    app,
    "stallward.papers.experiment_commands:dasec",
    "Repeat the experiment of DASEC (Symposium on Cloud Computing).",
    "stallward experiment dasec --applications memcached --minutes 10",
)
