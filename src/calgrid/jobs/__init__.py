"""Jobs of the workflow: each reads files, calls the library and publishes files, without
Snakemake.
"""
