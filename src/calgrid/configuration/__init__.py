"""From a configuration file to jobs; imports neither torch nor Snakemake.

Each module builds on those before it: ``files`` (YAML), ``model`` (all keys with types, defaults
and meanings), ``datasets``, ``components`` (methods, calibrators, probes), ``protocols``,
``runs`` (what a study consists of), ``ensembles``, ``checks`` (combinations of options),
``external`` (logits made elsewhere), ``study`` (grids to runs), ``plan`` (specifications and
fingerprints of runs, whose keys :mod:`calgrid.specs` and ``manifest`` list), ``jobs`` (functions of
the rules). Further modules: ``resources`` and ``costs`` (estimates), ``focal_calibration``
(published checkpoints), ``papers`` and ``paper_model`` (tables, claims and figures of papers),
``home`` (the folder of rules and protocols).

A key is read at three places: ``model`` declares it, ``Study`` resolves it for a run (``Run``,
``ExternalRun``, ``Ensemble``, and ``Evaluation``), and ``Plan`` writes it into the specification of
a job.
"""
