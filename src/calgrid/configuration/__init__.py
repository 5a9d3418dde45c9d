"""From a configuration file to the runs of a study; imports neither torch nor Snakemake."""
