"""The daemon's own Prometheus metrics, served by its service process.

They cost the loop nothing: they are made from the tick records and the status that it sends to
the service anyway. ``table`` declares the metrics, ``counts`` counts, and ``exposition`` renders
them with prometheus_client, which is imported only if metrics are configured.
"""
