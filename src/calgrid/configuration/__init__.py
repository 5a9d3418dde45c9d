"""From a configuration file to jobs; imports neither torch nor Snakemake.

Each module builds on those before it: ``yaml_files``, ``model`` (all keys with types, defaults and
meanings), ``datasets``, ``protocols``, ``runs`` (methods, calibrators, probes, and runs of them),
``checks`` (combinations of options), ``external`` (logits made elsewhere), ``study`` (grids to
runs), ``plan`` (specifications and fingerprints of runs, whose keys :mod:`calgrid.storage.specs`
and ``manifest`` list), ``rules`` (functions of the rules). Further modules: ``resources`` and
``costs`` (estimates), ``focal_calibration`` (published checkpoints), ``papers`` (their folders),
``home`` (the folder of rules and protocols).

A key is read at three places: ``model`` declares it, ``Study`` resolves it for a run (``Run``,
``ExternalRun``, ``Ensemble``, and ``Evaluation``), and ``Plan`` writes it into the specification of
a job.
"""

#: nothing in this package changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True
