"""Parsers of flat files that remember no positions of lines from one content to the next."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.sensors.files.cpu import CpuStat, cpu_stat_parser
from stallward.actuator.sensors.files.memcg import GroupMemory, stat_parser
from stallward.actuator.sensors.files.meminfo import VmStat, vmstat_parser


def parse_cpu_stat(content: bytes, path: Path) -> CpuStat:
    return cpu_stat_parser()(content, path)


def parse_stat_v1(content: bytes, path: Path) -> GroupMemory:
    return stat_parser(v2=False)(content, path)


def parse_stat_v2(content: bytes, path: Path) -> GroupMemory:
    return stat_parser(v2=True)(content, path)


def parse_vmstat(content: bytes, path: Path) -> VmStat:
    return vmstat_parser()(content, path)
