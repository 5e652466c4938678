"""How either end of a gRPC connection notices that the network between them failed."""

from __future__ import annotations


def keepalive_options(silence_s: float) -> list[tuple[str, int]]:
    """The options of a channel or a server that notices a broken connection.

    The other end is asked for a sign of life after two thirds of the time, and has the last third
    to give it.

    Args:
        silence_s: After how long without a sign of life the connection counts as broken; at least
            0.3 s are taken.
    """
    third_ms = max(round(silence_s * 1000 / 3), 100)
    return [
        ("grpc.keepalive_time_ms", 2 * third_ms),
        ("grpc.keepalive_timeout_ms", third_ms),
        # Newer versions wait a minute for the answer to a ping, whatever the keepalive allows.
        ("grpc.http2.ping_timeout_ms", third_ms),
        # By default only two may follow each other without a message, and watchers send none.
        ("grpc.http2.max_pings_without_data", 0),
    ]
