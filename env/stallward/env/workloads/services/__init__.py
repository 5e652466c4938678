"""Servers of the scenarios, and what starts or fills servers of other projects."""
