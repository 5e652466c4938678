"""Services that look something up: a directory, a name server, a full-text search."""
