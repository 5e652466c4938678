"""The files of the port for other machines, which decide who may come in."""

from __future__ import annotations

from typing import Final

from stallward.actuator.config.tables import RemoteConfig
from stallward.actuator.doctor.finding import Finding, finding
from stallward.agent.believed_file import MOST_PEM_BYTES, read_believed
from stallward.agent.errors import UnbelievedFileError

_MAKE_IT: Final = "Correct [remote] in the configuration, or make the file."


def try_remote(remote: RemoteConfig | None) -> list[Finding]:
    """Whether the service would take the certificate, its key, and the authorities of clients."""
    if remote is None:
        return []
    findings = []
    for path in (remote.certificate, remote.key, remote.client_ca):
        fault, step = "", _MAKE_IT
        try:
            read_believed(path, MOST_PEM_BYTES)
        except UnbelievedFileError as error:
            fault, step = error.cause, error.next_step
        except OSError as error:
            fault = f"{path} cannot be read ({error.strerror})"
        findings.append(finding("configuration", str(path), fault, step))
    return findings
