"""``stallward ctl push`` sends policies only."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.evaluation.cli import main

MISTAKE = 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"root:x:0:0:root:/root:/bin/bash\n", "is not an ONNX model"),
        (b"[thresholds]\nmargin_share = 0.1\n", "is not an ONNX model"),
        (b"", "is empty"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_policy_is_refused_before_any_daemon_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    policy = tmp_path / "passwd"
    if content is not None:
        policy.write_bytes(content)
    socket = tmp_path / "nobody.sock"
    assert main(["ctl", "push", str(policy), "--socket", str(socket)]) == MISTAKE
    assert said in capsys.readouterr().err
