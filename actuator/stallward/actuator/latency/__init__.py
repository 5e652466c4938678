"""Where the protected application's request latencies come from, besides its own log.

Scraping an endpoint, receiving datagrams and serving a gRPC stream happen in other processes
than the loop; they send it frames (``frames``) through a socket that it reads without waiting
(``source``). All sources sum up the last second in the same window (``window``).
"""
