"""The doctor looks at the files of the port as the service does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallward.actuator.config.tables import RemoteConfig
from stallward.actuator.doctor.configuration import try_remote


def test_it_names_the_file_that_the_service_would_refuse(tmp_path: Path) -> None:
    assert try_remote(None) == []
    certificate, key, authority = (tmp_path / f"{name}.pem" for name in ("a", "b", "c"))
    for path in (certificate, key, authority):
        path.write_text("PEM")
    remote = RemoteConfig(
        address="0.0.0.0:7443", certificate=certificate, key=key, client_ca=authority
    )
    assert {one.state for one in try_remote(remote)} == {"works"}
    key.unlink()
    found = try_remote(remote)[1]
    assert found.state == "degraded"
    assert found.why == f"{key} cannot be read (No such file or directory)"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root doubts its files")
def test_an_authority_that_others_can_write_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("PEM")
    path.chmod(0o666)
    remote = RemoteConfig(address="0.0.0.0:7443", certificate=path, key=path, client_ca=path)
    (_, _, authority) = try_remote(remote)
    assert "others may have written it" in authority.why
    assert authority.next_step.endswith(f"chown root {path}; chmod go-w {path}")
