"""Structured mutations of real contents, as values: hypothesis shrinks them, the long run draws
them by the thousand.

An input is a :class:`Recipe`: a sample (or raw bytes) and a few mutations of it. Positions are
16-bit shares of the content's length, so that a mutation means something for any content.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

POSITIONS: Final = 1 << 16
MIB: Final = 1 << 20

NUMBERS: Final = (
    b"0", b"-0", b"1", b"-1", b"00012", b"+5", b"1_000", b"0x1f", b"1e3", b"1e999", b"-1e999",
    b"nan", b"NaN", b"inf", b"-inf", b"Infinity", b"0.0", b"1.5", b".5", b"5.", b"1e-400",
    b"2147483647", b"2147483648", b"-2147483649", b"4294967296", b"9007199254740993",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
    b"18446744073709551616", b"-9223372036854775809", b"99999999999999999999999999",
    b"1" + b"0" * 400, b"9" * 5000, b"max", b"",
    "\u0661\u0662".encode(), "\u00b2".encode(), "\uff11".encode(),
)  # fmt: skip
"""Texts that replace a number."""
BITS: Final = (
    b"\0", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\r", b"\n", b"\n\n", b"\r\n", b"\t", b" ",
    b"  ", b"\x0b", b"\x1c", b"\x85", "\u2028".encode(), "\u00a0".encode(), b"-", b"_", b".",
    b",", b":", b"=", b"|", b"#", b"@", b"(", b")", b"[", b"]", b"{", b"}", b'"', b"'", b"\\",
    b"\\134", b"\\777", b"%", b"kB", b"/../", b"\x7f", "\u202e".encode(), b"\xef\xbb\xbf",
)  # fmt: skip
"""Bytes that are inserted anywhere."""
JSON_VALUES: Final = (
    b"null", b"true", b"false", b"[]", b"{}", b'""', b"[[]]", b'{"a":1}', b'"\\u0000"',
    b'"\\ud800"', b'"x"', b"[null]", b"-1", b"1e999", b"NaN", b"-Infinity",
)  # fmt: skip
TOML_VALUES: Final = (
    b"true", b"[]", b"{}", b'""', b"[[]]", b"{ a = 1 }", b'"\\u0000"', b"1979-05-27", b"07:32:00",
    b"inf", b"nan", b"-1", b"0x" + b"f" * 5000, b"[1, 'a']", b'["a"]', b"1e308", b"0o17",
)  # fmt: skip

_WORD: Final = re.compile(rb'"[^"\n]*"|[^\s=:,\[\]{}|"]+')
_NUMBER: Final = re.compile(rb"\d+")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of an input.

    Attributes:
        kind: A key of :data:`KINDS`.
        at: The position, as a share of 65536.
        choice: A number from which the kind takes every other choice.
    """

    kind: str
    at: int
    choice: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """A sample, or raw bytes, and the mutations that make an input of it."""

    sample: int
    raw: bytes
    """Stands in the sample's place if it is not empty."""
    mutations: tuple[Mutation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The samples and words from which the inputs of one target are made."""

    samples: tuple[bytes, ...]
    values: tuple[bytes, ...] = ()
    """Words of the format, beside numbers."""


def _offset(content: bytes, at: int) -> int:
    return (len(content) + 1) * at // POSITIONS


def _truncate(content: bytes, m: Mutation, _: Material) -> bytes:
    return content[: _offset(content, m.at)]


def _behead(content: bytes, m: Mutation, _: Material) -> bytes:
    return content[_offset(content, m.at) :]


def _flip(content: bytes, m: Mutation, _: Material) -> bytes:
    at = _offset(content, m.at)
    if at >= len(content):
        return content
    return content[:at] + bytes((content[at] ^ 1 << m.choice % 8,)) + content[at + 1 :]


def _insert(content: bytes, m: Mutation, _: Material) -> bytes:
    at = _offset(content, m.at)
    return content[:at] + BITS[m.choice % len(BITS)] + content[at:]


def _cut(content: bytes, m: Mutation, _: Material) -> bytes:
    at = _offset(content, m.at)
    return content[:at] + content[at + 1 + m.choice % 16 :]


def _repeat(content: bytes, m: Mutation, _: Material) -> bytes:
    at = _offset(content, m.at)
    piece = content[at : at + 1 + m.choice % 64]
    return content[:at] + piece * (2 + m.choice % 3) + content[at + len(piece) :]


def _one_of(pattern: re.Pattern[bytes], content: bytes, at: int) -> re.Match[bytes] | None:
    """The first match at or after a position, or else the first of all."""
    return pattern.search(content, _offset(content, at)) or pattern.search(content)


def _number(content: bytes, m: Mutation, _: Material) -> bytes:
    match = _one_of(_NUMBER, content, m.at)
    if match is None:
        return content
    return content[: match.start()] + NUMBERS[m.choice % len(NUMBERS)] + content[match.end() :]


def _word(content: bytes, m: Mutation, material: Material) -> bytes:
    words = material.values + NUMBERS
    match = _one_of(_WORD, content, m.at)
    if match is None:
        return content
    return content[: match.start()] + words[m.choice % len(words)] + content[match.end() :]


def _swap_words(content: bytes, m: Mutation, _: Material) -> bytes:
    first = _one_of(_WORD, content, m.at)
    if first is None:
        return content
    second = _one_of(_WORD, content, m.choice * 257 % POSITIONS)
    if second is None or second.start() <= first.end():
        return content
    middle = content[first.end() : second.start()]
    return content[: first.start()] + second[0] + middle + first[0] + content[second.end() :]


def _lines(change: Callable[[list[bytes], int, int], list[bytes]]) -> Apply:
    def apply(content: bytes, m: Mutation, _: Material) -> bytes:
        lines = content.splitlines(keepends=True)
        if not lines:
            return content
        return b"".join(change(lines, len(lines) * m.at // POSITIONS, m.choice % len(lines)))

    return apply


def _duplicate(lines: list[bytes], i: int, j: int) -> list[bytes]:
    return [*lines[:j], lines[i], *lines[j:]]


def _remove(lines: list[bytes], i: int, _: int) -> list[bytes]:
    return lines[:i] + lines[i + 1 :]


def _swap(lines: list[bytes], i: int, j: int) -> list[bytes]:
    lines[i], lines[j] = lines[j], lines[i]
    return lines


def _splice(content: bytes, m: Mutation, material: Material) -> bytes:
    other = material.samples[m.choice % len(material.samples)]
    return content[: _offset(content, m.at)] + other[_offset(other, m.at) :]


def _long(content: bytes, m: Mutation, _: Material) -> bytes:
    """Insert a very long line, word, number or run of one byte."""
    at = _offset(content, m.at)
    byte = (b"9", b" ", b"a", content[at : at + 1] or b"x")[m.choice % 4]
    return content[:at] + byte * (MIB if m.choice % 16 == 0 else 20_000) + content[at:]


def _nest(content: bytes, m: Mutation, _: Material) -> bytes:
    at = _offset(content, m.at)
    opening = (b"[", b"{", b'{"a":', b"[[", b"a.", b"(", b"[{a=")[m.choice % 7]
    return content[:at] + opening * (3 + m.choice % 9 * 5000) + content[at:]


Apply = Callable[[bytes, Mutation, Material], bytes]

KINDS: Final[dict[str, Apply]] = {
    "number": _number,
    "word": _word,
    "truncate": _truncate,
    "flip": _flip,
    "insert": _insert,
    "cut": _cut,
    "repeat": _repeat,
    "swap words": _swap_words,
    "duplicate line": _lines(_duplicate),
    "remove line": _lines(_remove),
    "swap lines": _lines(_swap),
    "splice": _splice,
    "behead": _behead,
    "crlf": lambda content, _m, _: content.replace(b"\n", b"\r\n"),
    "no newline": lambda content, _m, _: content.rstrip(b"\n"),
    "empty": lambda _content, _m, _: b"",
    "nest": _nest,
    "long": _long,
}
_NAMES: Final = tuple(KINDS)
_COMMON: Final = _NAMES.index("crlf")
"""The kinds from here on are drawn seldom: one is enough, or they are slow."""
MAX_BYTES: Final = 3 * MIB


def make(recipe: Recipe, material: Material) -> bytes:
    """Make the input of a recipe."""
    content = recipe.raw or material.samples[recipe.sample % len(material.samples)]
    for mutation in recipe.mutations:
        content = KINDS[mutation.kind](content, mutation, material)
    return content[:MAX_BYTES]


def recipes() -> st.SearchStrategy[Recipe]:
    """Recipes for hypothesis; they shrink to few mutations at the start of the first sample."""
    share = st.integers(0, POSITIONS - 1)
    kinds = st.sampled_from(_NAMES)
    mutations = st.builds(Mutation, kind=kinds, at=share, choice=share)
    return st.builds(
        Recipe,
        sample=st.integers(0, 63),
        raw=st.one_of(st.just(b""), st.just(b""), st.just(b""), st.binary(max_size=64)),
        mutations=st.lists(mutations, max_size=5).map(tuple),
    )


def draw(rng: random.Random) -> Recipe:
    """Draw a recipe for the long run, from the same mutations."""
    kind = rng.random()
    if kind < 0.03:
        return Recipe(0, rng.randbytes(1 + int(rng.random() * 100)), ())
    mutations = []
    for _ in range(1 if kind < 0.4 else 1 + int(rng.random() * 5)):
        seldom = rng.random() < 0.015
        index = int(rng.random() * (len(_NAMES) if seldom else _COMMON))
        at, choice = int(rng.random() * POSITIONS), int(rng.random() * POSITIONS)
        mutations.append(Mutation(_NAMES[index], at, choice))
    return Recipe(int(rng.random() * 64), b"", tuple(mutations))
