"""From a configuration file to jobs; imports neither torch nor Snakemake.

Each module builds on those before it: ``files`` (YAML, schemas, defaults), ``datasets``, ``components`` (methods,
calibrators, probes) and ``protocols`` (all that a configuration can name), ``checks`` (what is refused), ``study``
(grids become runs), ``plan`` (runs become specifications with fingerprints), ``jobs`` (what the rules ask). Beside:
``resources`` and ``costs`` (estimates), ``repair`` (damaged results), ``papers`` (what results are compared with).
"""
