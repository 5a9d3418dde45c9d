"""From a configuration file to jobs; imports neither torch nor Snakemake.

Each module builds on those before it: ``files`` (YAML, schemas, defaults), ``datasets``,
``components`` (methods, calibrators, probes), ``protocols``, ``checks`` (validation of
combinations), ``study`` (grids to runs), ``plan`` (specifications and fingerprints of runs),
``jobs`` (functions of the rules). Further modules: ``resources`` and ``costs`` (estimates),
``repair`` (damaged results), ``papers`` (published tables and claims).
"""
