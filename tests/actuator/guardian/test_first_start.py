"""A mistake that only the user can correct is said before there is a daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from around_the_guardian import config_in

from stallward.actuator.config.tables import RecordConfig
from stallward.actuator.errors import DaemonError
from stallward.actuator.guardian.first_start import check_first_start


@pytest.mark.parametrize("key", ["socket_group", "report_group"])
def test_a_group_that_does_not_exist_is_refused(tmp_path: Path, key: str) -> None:
    made = config_in(tmp_path)
    service = replace(
        made.service,
        report_socket=tmp_path / "r",
        **{key: "no-such-group"},  # type: ignore[arg-type]
    )
    with pytest.raises(DaemonError, match=f"no group 'no-such-group'.*`{key}`"):
        check_first_start(replace(made, service=service))


def test_a_folder_for_records_can_be_written(tmp_path: Path) -> None:
    check_first_start(config_in(tmp_path, record=RecordConfig(dir=tmp_path / "new/records")))
    assert (tmp_path / "new/records").is_dir()
    with pytest.raises(DaemonError, match=r"/proc/nowhere, cannot be written \(No such file"):
        check_first_start(config_in(tmp_path, record=RecordConfig(dir=Path("/proc/nowhere"))))


def test_what_others_can_break_there_ends_no_daemon(tmp_path: Path) -> None:
    theirs = tmp_path / "of another user"
    theirs.write_text("no folder")
    theirs.chmod(0o666)
    check_first_start(config_in(tmp_path, record=RecordConfig(dir=theirs)))
