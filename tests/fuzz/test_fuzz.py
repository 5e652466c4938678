"""The short run of every target of the fuzzer; ``make fuzz`` is the long one."""

from __future__ import annotations

import pytest
from fuzz_mutations import Recipe, make, recipes
from fuzz_registry import targets
from fuzz_run import fuzz
from fuzz_target import FindingError, Target, sound, try_input
from hypothesis import HealthCheck, given, settings

from stallward.actuator.errors import SensorError

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of patterns that users write

_EXAMPLES = min(60, settings().max_examples)


@pytest.mark.parametrize("name", targets())
def test_real_contents_are_understood(name: str) -> None:
    target = targets()[name]
    assert all(try_input(target, content) for content in target.material.samples)


@pytest.mark.parametrize("name", targets())
def test_bad_input_is_refused_or_understood(name: str) -> None:
    target = targets()[name]

    @settings(
        max_examples=max(_EXAMPLES // target.slow, 10),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(recipes())
    def run(recipe: Recipe) -> None:
        try_input(target, make(recipe, target.material))

    run()


def test_the_fuzzer_notices_a_reader_that_breaks(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    broken = Target(
        name="broken",
        run=lambda content: content.index(b" "),
        material=targets()["psi"].material,
        errors=(SensorError,),
        check=sound,
    )
    outcome = fuzz(broken, inputs=2000, seed=1)
    assert len(outcome.findings) == 1  # one cause, however often it is met
    assert "ValueError" in outcome.findings[0]
    assert "input: b''" in outcome.findings[0]  # made as small as it can be


def test_the_fuzzer_notices_a_wrong_value_and_an_untyped_message() -> None:
    psi = targets()["psi"]
    wrong = Target(
        name="wrong",
        run=lambda content: (psi.run(content)[0], 0),
        material=psi.material,
        errors=psi.errors,
        names=psi.names,
        check=psi.check,
    )
    nameless = Target(
        name="nameless",
        run=psi.run,
        material=psi.material,
        errors=psi.errors,
        names="/elsewhere",
        check=psi.check,
    )
    with pytest.raises(FindingError, match="the reference reads"):
        try_input(wrong, psi.material.samples[0])
    with pytest.raises(FindingError, match="does not name"):
        try_input(nameless, b"")
