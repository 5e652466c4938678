"""The words of the command line: kinds of traces, and orders of processes."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What is traced."""

    NODE = "node"
    PSI = "psi"
    PROCESS = "process"
    PAGETYPE = "pagetype"
    PAGECACHE = "pagecache"
    BLOCKIO = "blockio"
    LARGEST = "largest"


class Key(StrEnum):
    """What the largest processes are ordered by."""

    RSS = "rss"
    PSS = "pss"
    USS = "uss"
    ANON = "anon"
    FILE = "file"
    SWAP = "swap"
    VIRTUAL = "virtual"
    CPU = "cpu"
