"""Files of results: atomic writes, locks, Parquet tables, checkpoints, records."""
