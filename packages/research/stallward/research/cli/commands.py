"""The commands that ``stallward`` finds by the entry points of this package."""

from __future__ import annotations

from stallward.actuator.cli.lazy import lazy_app

SEARCH = lazy_app(
    "stallward.research.cli.search:search",
    "Search recipes for `stallward train` by Optuna.",
    "stallward search space.toml --out build/search",
)
ORACLE = lazy_app(
    "stallward.research.cli.oracle:oracle",
    "Name the static settings that may be the best in hindsight.",
    "stallward oracle detector-anon",
)
BORDER = lazy_app(
    "stallward.research.cli.border:border",
    "Measure what lending the application's memory costs and gives.",
    "stallward border memcached-zstd",
)
CAPACITY = lazy_app(
    "stallward.research.cli.capacity:capacity",
    "Measure the least memory at which each controller serves.",
    "stallward capacity memcached-zstd --arms none,partition",
)
FIDELITY = lazy_app(
    "stallward.research.cli.fidelity:fidelity",
    "Measure the error of the twin against live runs.",
    "stallward fidelity recordings",
)
VERDICT = lazy_app(
    "stallward.research.cli.verdict:verdict",
    "Judge the policy live on every held-out scenario.",
    "stallward verdict --out build/verdict",
)
OPE = lazy_app(
    "stallward.research.cli.off_policy:ope",
    "Estimate candidates from recordings of a randomised arm.",
    "stallward ope recordings --arms ppo",
)
EXPLAIN = lazy_app(
    "stallward.research.cli.off_policy:explain",
    "Say which features a policy's choices come from.",
    "stallward explain default recordings/detector-anon-none-s1 --at 20",
)
MINARI = lazy_app(
    "stallward.research.cli.off_policy:minari",
    "Write recordings of a randomised arm as a Minari dataset.",
    "stallward minari recordings/detector-anon-excite-s1 --name stallward/detector-anon/excite-v0",
)
