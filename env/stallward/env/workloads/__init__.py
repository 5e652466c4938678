"""The programs that the shipped scenarios run, and the programs that make their data."""
