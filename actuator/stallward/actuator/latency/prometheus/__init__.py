"""Latencies from a histogram that the application exposes by HTTP.

A ``scraper`` asks for the page (``http_get``), finds the series that a ``selector`` names on it
(``histogram``) and sends what was added since the last page (``increase``).
"""
