"""Targets whose groups come and go: how the configuration names them, and what is told of them."""
