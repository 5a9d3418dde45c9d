"""Files of results: atomic writes, locks, Parquet tables, checkpoints, records."""

#: nothing in this package changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True
