"""The daemon's own Prometheus metrics, served by its service process.

The loop does nothing for them: everything comes from the tick records and the status that it
sends the service anyway. ``table`` declares them, ``counts`` keeps them, ``exposition`` renders
them with prometheus_client, which is imported only where metrics are configured.
"""
