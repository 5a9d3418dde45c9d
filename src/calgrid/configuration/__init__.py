"""From a configuration file to jobs; imports neither torch nor Snakemake.

Each module builds on those before it: ``files`` (YAML), ``validation`` (errors of pydantic as
sentences), ``model`` (all keys with types, defaults and meanings), ``datasets``, ``components``
(methods, calibrators, probes), ``protocols``, ``checks`` (combinations of options), ``study``
(grids to runs), ``plan`` (specifications and fingerprints of runs), ``jobs`` (functions of the
rules). Further modules: ``resources`` and ``costs`` (estimates), ``focal_calibration`` (published
checkpoints), ``papers`` and ``paper_model`` (tables, claims and figures of papers).
"""
