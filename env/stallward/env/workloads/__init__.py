"""The programs that shipped scenarios run, and the data they need."""
