"""Everything that touches the disk: atomic files, locks, Parquet tables, checkpoints, published stages."""
