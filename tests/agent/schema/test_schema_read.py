"""The strict reader: what it reads, what it refuses with which message; and the writer."""

from __future__ import annotations

import json
import math
import re
import string
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.agent.errors import ActionError, SchemaError, StallwardError
from stallward.agent.schema.describe import Expect
from stallward.agent.schema.json_file import read_json
from stallward.agent.schema.marks import Flat
from stallward.agent.schema.read import NonNegativeFloat, read
from stallward.agent.schema.toml_file import read_toml
from stallward.agent.schema.write import to_table, to_toml


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def even(number: int) -> None:
    if number % 2:
        raise SchemaError(f"is {number}, an odd number.", next_step="Give an even one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    size_mm: Annotated[int, Expect(low=10, high=900, unit="mm")]
    name: str = ""
    spokes: Annotated[int, even] = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Petrol:
    source: Literal["petrol"] = "petrol"
    octane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    source: Literal["battery"] = "battery"
    volts: float
    cells: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Car:
    owner: str
    wheels: Annotated[tuple[Wheel, ...], Expect(low=1, high=4, unit="wheels")]
    speed: float = 1.5
    folder: Path = Path("/")
    parked: bool = False
    colour: Colour = Colour.RED
    gear: Literal["auto", "manual"] = "auto"
    engine: Petrol | Battery | None = None
    top: Annotated[float, Expect(low=1, unit="km/h")] | Literal["none"] = "none"
    spare: Wheel | None = None
    routes: tuple[tuple[str, ...], ...] = ()
    prices: Mapping[str, NonNegativeFloat] = field(default_factory=dict)
    note: Mapping[str, object] = field(default_factory=dict)
    span: Annotated[float, Expect(low=0, infinite=True)] = math.inf

    def __post_init__(self) -> None:
        if self.parked and self.speed:
            raise SchemaError(f"speed is {self.speed:g}, but parked.", next_step="Stop it.")
        if self.owner == "nobody":
            raise ActionError("Nobody owns a car.", next_step="Sell it.")


GOOD: dict[str, Any] = {"owner": "Ann", "wheels": [{"size_mm": 600}]}
WHEELS = (Wheel(size_mm=600),)


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ({}, "speed", 1.5),
        ({"speed": 3}, "speed", 3.0),
        ({"speed": -1e300}, "speed", -1e300),
        ({"folder": "/tmp/x"}, "folder", Path("/tmp/x")),
        ({"parked": True, "speed": 0}, "parked", True),
        ({"colour": "blue"}, "colour", Colour.BLUE),
        ({"gear": "manual"}, "gear", "manual"),
        ({"engine": {"octane": 95}}, "engine", Petrol(octane=95)),
        ({"engine": {"source": "battery", "volts": 400}}, "engine", Battery(volts=400.0)),
        ({"engine": None}, "engine", None),
        ({"top": 250}, "top", 250.0),
        ({"top": "none"}, "top", "none"),
        ({"spare": {"size_mm": 10, "spokes": 0}}, "spare", Wheel(size_mm=10, spokes=0)),
        ({"routes": [["a", "b"], []]}, "routes", (("a", "b"), ())),
        ({"prices": {"a b": 1}}, "prices", {"a b": 1.0}),
        ({"note": {"x": [None, {"y": 1 << 70}]}}, "note", {"x": [None, {"y": 1 << 70}]}),
        ({"span": math.inf}, "span", math.inf),
        ({"owner": "\u00fc \U0001f600"}, "owner", "\u00fc \U0001f600"),
    ],
)
def test_a_valid_value_is_read(more: dict[str, Any], key: str, value: object) -> None:
    car = read(Car, {**GOOD, **more})
    assert getattr(car, key) == value
    assert type(getattr(car, key)) is type(value)
    assert (car.owner[0], car.wheels) == (more.get("owner", "Ann")[0], WHEELS)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        # types
        ({"owner": 3}, "car.owner is 3, not a string but a whole number."),
        ({"owner": None}, "car.owner is None, not a string but null."),
        ({"owner": ["x"]}, "car.owner is ['x'], not a string but a list."),
        ({"speed": "3"}, "car.speed is '3', not a number but a string."),
        ({"speed": True}, "car.speed is True, not a number but true or false."),
        ({"speed": math.nan}, "car.speed is nan, not a finite number."),
        ({"speed": math.inf}, "car.speed is inf, not a finite number."),
        ({"span": math.nan}, "car.span is nan, not a finite number."),
        ({"parked": 1}, "car.parked is 1, not true or false but a whole number."),
        ({"folder": 1}, "car.folder is 1, not a path but a whole number."),
        ({"speed": 1 << 63}, "car.speed does not fit into 64 bits."),
        ({"speed": 10**5000}, "car.speed does not fit into 64 bits."),
        ({"owner": 10**5000}, "car.owner does not fit into 64 bits."),
        ({"owner": "a\0b"}, r"car.owner is 'a\x00b': it holds a NUL, which no name can."),
        ({"folder": "\0"}, r"car.folder is '\x00': it holds a NUL, which no name can."),
        ({"owner": "\ud800"}, r"car.owner is '\ud800': it holds half a character."),
        ({"owner": "x" * 999 + "\0"}, f"car.owner is '{'x' * 199}...: it holds a NUL"),
        # tables and lists of tables
        ({"wheels": 3}, "car.wheels is 3, not a list of 1 to 4 wheels but a whole number."),
        ({"wheels": [3]}, "car.wheels[0] is 3, not a table but a whole number."),
        ({"wheels": []}, "car.wheels has 0 wheels, but must have 1 to 4."),
        ({"wheels": [GOOD["wheels"][0]] * 5}, "car.wheels has 5 wheels, but must have 1 to 4."),
        ({"spare": []}, "car.spare is [], not a table but a list."),
        ({"routes": ["a"]}, "car.routes[0] is 'a', not a list of strings but a string."),
        ({"routes": [["a", 1]]}, "car.routes[0][1] is 1, not a string but a whole number."),
        ({"prices": []}, "car.prices is [], not a table but a list."),
        ({"prices": {"a": -1}}, "car.prices.a is -1, but must be from 0 to 9.22337e+18."),
        # ranges and other checks
        (
            {"wheels": [{"size_mm": 901}]},
            "car.wheels[0].size_mm is 901 mm, but must be from 10 to 900.",
        ),
        (
            {"spare": {"size_mm": 99, "spokes": 3}},
            "car.spare.spokes is 3, an odd number. Give an even one.",
        ),
        ({"parked": True}, "car.speed is 1.5, but parked. Stop it."),
        ({"owner": "nobody"}, "Nobody owns a car. Sell it."),
        # choices and unions
        ({"gear": "manuel"}, "car.gear is 'manuel'. Did you mean 'manual'?"),
        ({"gear": 1}, "car.gear is 1. Choose one of: 'auto', 'manual'."),
        ({"gear": ["auto"]}, "car.gear is ['auto']. Choose one of: 'auto', 'manual'."),
        ({"colour": "blu"}, "car.colour is 'blu'. Did you mean 'blue'?"),
        ({"colour": "RED"}, "car.colour is 'RED'. Choose one of: 'red', 'blue'."),
        (
            {"top": "fast"},
            "car.top is 'fast', not a number of km/h at least 1 or 'none'.",
        ),
        ({"top": 0.5}, "car.top is 0.5, not a number of km/h at least 1 or 'none'."),
        ({"engine": 3}, "car.engine is 3, not a table but a whole number."),
        (
            {"engine": {"source": "patrol"}},
            "car.engine.source is 'patrol'. Did you mean 'petrol'?",
        ),
        (
            {"engine": {"octane": 95, "volts": 3}},
            "car.engine.volts does not apply to source = 'petrol'. "
            "It belongs to source = 'battery'.",
        ),
        (
            {"engine": {"source": "battery"}},
            "car.engine.volts is missing. Add volts to car.engine; it is a number.",
        ),
        # unknown and missing keys
        (
            {"wheels": [{}]},
            "car.wheels[0].size_mm is missing. "
            "Add size_mm to car.wheels[0]; it is a whole number of mm from 10 to 900.",
        ),
        ({"sped": 3}, "car has an unknown key 'sped'. Did you mean 'speed'?"),
        ({"spare": {"size_mm": 99, "zzz": 1}}, "car.spare has an unknown key 'zzz'. Known keys: "),
        ({3: 4}, "car has an unknown key 3. Known keys: owner, wheels, speed"),
        (
            {"wheels": [{"size_m": 3}]},
            "car.wheels[0] has an unknown key 'size_m'. Did you mean 'size_mm'? "
            "car.wheels[0].size_mm is missing; it is a whole number of mm from 10 to 900.",
        ),
    ],
)
def test_a_mistake_names_the_key_what_is_expected_and_what_is_there(
    more: dict[str, Any], said: str
) -> None:
    with pytest.raises(SchemaError, match=f"^{re.escape(said)}"):
        read(Car, {**GOOD, **more}, "car")


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(SchemaError) as caught:
        read(Car, {"wheels": [{"size_mm": "x"}, {"spokes": 3}], "speed": None, "a": 1, "b": 2})
    message = str(caught.value)
    for part in (
        "the file has an unknown key 'a'.",
        "the file has an unknown key 'b'.",
        "owner is missing.",
        "wheels[0].size_mm is 'x', not",
        "wheels[1].size_mm is missing.",
        "wheels[1].spokes is 3, an odd number. Give an even one.",
        "speed is None, not",
    ):
        assert message.count(part) == 1, message


def test_reading_stops_early_in_a_file_of_another_kind() -> None:
    with pytest.raises(SchemaError) as caught:
        read(Car, {str(number): number for number in range(100_000)})
    assert len(str(caught.value)) < 2100
    others: tuple[object, ...] = ([], "x", 3, None)
    for other in others:
        with pytest.raises(SchemaError, match=r"^the file is .*, not a table but"):
            read(Car, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    scale: Annotated[float, Expect(required=True)] = 1.0


def test_a_key_may_be_required_though_code_has_a_default() -> None:
    assert Fitted() == read(Fitted, {"scale": 1})
    with pytest.raises(SchemaError, match="scale is missing"):
        read(Fitted, {})


def test_a_schema_error_is_a_stallward_error() -> None:
    assert issubclass(SchemaError, StallwardError)


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="overwrite"):
        read_toml("a = 1\na = 2")
    with pytest.raises(ValueError, match="the key 'a' is there twice"):
        read_json('[{"b": {"a": 1, "c": 2, "a": 1}}]')
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json("[" * 100_000)
    assert read_json('{"a": {"a": NaN}, "b": [1]}') == {
        "a": {"a": pytest.approx(math.nan, nan_ok=True)},
        "b": [1],
    }


TEXTS = st.text(
    st.characters(exclude_characters="\0\b\f\x1b", exclude_categories=["Cs"]), max_size=20
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
WHEEL = st.builds(
    Wheel,
    size_mm=st.integers(10, 900),
    name=TEXTS,
    spokes=st.integers(-(2**62), 2**62 - 1).map(lambda number: 2 * number),
)
ENGINES = st.builds(Petrol, octane=st.integers(-(2**63), 2**63 - 1)) | st.builds(
    Battery, volts=FINITE, cells=st.lists(st.integers(0, 9), max_size=3).map(tuple)
)
CARS = st.builds(
    Car,
    owner=TEXTS.filter(lambda text: text != "nobody"),
    wheels=st.lists(WHEEL, min_size=1, max_size=4).map(tuple),
    speed=FINITE,
    folder=TEXTS.map(Path),
    colour=st.sampled_from(Colour),
    gear=st.sampled_from(["auto", "manual"]),
    engine=st.none() | ENGINES,
    top=st.just("none") | st.floats(1, 1e300),
    spare=st.none() | WHEEL,
    routes=st.lists(st.lists(TEXTS, max_size=3).map(tuple), max_size=3).map(tuple),
    prices=st.dictionaries(TEXTS, st.floats(0, 1e18), max_size=3),
    note=st.dictionaries(
        st.text(string.printable, max_size=5), TEXTS | st.booleans() | FINITE, max_size=3
    ),
    span=st.floats(0, allow_nan=False),
)


@given(car=CARS)
def test_a_written_value_is_read_back(car: Car) -> None:
    assert read(Car, read_toml(to_toml(car))) == car
    assert read(Car, read_json(json.dumps(to_table(car)))) == car


@dataclass(frozen=True, slots=True, kw_only=True)
class Trailer:
    load_kg: int
    wheel: Flat[Wheel]


def test_keys_of_a_flat_field_stand_beside_the_others() -> None:
    wheel = Wheel(size_mm=100, spokes=8)
    table = {"load_kg": 5, "size_mm": 100, "spokes": 8}
    assert read(Trailer, table) == Trailer(load_kg=5, wheel=wheel)
    with pytest.raises(SchemaError) as raised:
        read(Trailer, {"spoke": 8})
    assert str(raised.value).split(". ") == [
        "the file has an unknown key 'spoke'",
        "Did you mean 'spokes'? load_kg is missing",
        "Add load_kg to the file; it is a whole number",
        "size_mm is missing",
        "Add size_mm to the file; it is a whole number of mm from 10 to 900.",
    ]


def test_unknown_keys_of_another_version_are_ignored_where_only_programs_write() -> None:
    table = {"size_mm": 100, "name": "a\0", "colour": "red"}
    assert read(Wheel, table, strict=False) == Wheel(size_mm=100, name="a\0")
    with pytest.raises(SchemaError, match="holds a NUL"):
        read(Wheel, {"size_mm": 100, "name": "a\0"})
    with pytest.raises(SchemaError, match=r"size_mm is missing.*name is 1, not a string"):
        read(Wheel, {"name": 1}, strict=False)


def test_a_value_that_toml_cannot_express_is_refused() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Odd:
        number: int | None = 5

    with pytest.raises(ValueError, match="TOML cannot express None"):
        to_toml(Odd(number=None))
    assert to_toml(Odd()) == "number = 5\n"


def test_the_reader_needs_the_standard_library_only() -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import stallward.agent.schema.read, stallward.agent.schema.write\n"
        "import stallward.agent.schema.toml_file, stallward.agent.schema.json_file\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(loaded - set(sys.stdlib_module_names)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["stallward"]


@pytest.mark.parametrize(("escape", "name"), [(r"\b", r"\b"), (r"\f", r"\f"), (r"\u001b", r"\e")])
def test_an_escape_that_makes_a_control_character_was_meant_as_written(
    escape: str, name: str
) -> None:
    table = read_toml(f'size_mm = 10\nname = "{escape}in/batch"')
    with pytest.raises(SchemaError) as caught:
        read(Wheel, table)
    assert f"in double quotes {name} is a control character" in caught.value.cause
    assert "single quotes" in caught.value.next_step
    assert read(Wheel, read_toml(f"size_mm = 10\nname = '{escape}in'")).name == f"{escape}in"
