"""The application's threads on the wire."""
