"""Catalogues: many recordings as one Parquet dataset, on a disk or on shared storage."""
