"""The user's configuration: from a file to checked runs. Imports neither torch nor Snakemake.

Each module builds on those before it: ``yaml_files``, ``model`` (all keys with types, defaults and
meanings), ``datasets``, ``protocols``, ``runs`` (methods, calibrators, probes, and runs of them),
``checks`` (combinations of options), ``external`` (logits made elsewhere), ``study`` (grids to
runs), ``slow_checks`` (checks of files, plugins and networks). Further modules:
``focal_calibration`` (published checkpoints), ``papers`` (their folders), ``home`` (the folder of
rules and protocols).

A key is read at three places: ``model`` declares it, ``Study`` resolves it for a run (``Run``,
``ExternalRun``, ``Ensemble``, and ``Evaluation``), and :class:`calgrid.plan.plan.Plan` writes it
into the specification of a job.
"""

#: nothing in this package changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True
