"""The sources of the protected application's request latencies.

The loop reads a log itself. Scraping an endpoint, receiving datagrams and serving a gRPC stream
happen in other processes, which send the loop frames (``feed``) through a socket that it
reads without waiting (``channel_source``). All sources sum up the last second in the same window
(``window``).
"""
