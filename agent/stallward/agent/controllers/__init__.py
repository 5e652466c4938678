"""The shipped controllers, one file each. To add one, add its entry to ``SHIPPED``."""

from typing import Final

from stallward.agent.controllers import (
    border,
    excite,
    latd,
    lend,
    none,
    onnx,
    partition,
    psi_hold,
    remote,
    static,
    storm,
)
from stallward.agent.controllers.peers import (
    heracles,
    parties,
    senpai,
    sideloader,
    tmo,
)
from stallward.agent.controllers.peers.kill_daemons import (
    earlyoom,
    nohang,
    oomd,
    systemd_oomd,
)
from stallward.agent.plugin import ControllerEntry

SHIPPED: Final[tuple[ControllerEntry, ...]] = (
    none.ENTRY,
    static.ENTRY,
    partition.ENTRY,
    lend.ENTRY,
    psi_hold.ENTRY,
    *latd.ENTRIES,
    parties.ENTRY,
    heracles.ENTRY,
    senpai.ENTRY,
    tmo.ENTRY,
    sideloader.ENTRY,
    oomd.ENTRY,
    systemd_oomd.ENTRY,
    earlyoom.ENTRY,
    nohang.ENTRY,
    onnx.ENTRY,
    remote.ENTRY,
    excite.ENTRY,
    border.ENTRY,
    storm.ENTRY,
)
