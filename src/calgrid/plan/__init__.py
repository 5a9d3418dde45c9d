"""From a study to jobs: specifications and fingerprints (``plan``), the jobs that must run
(``pending``), what they ask for (``resources``), what they take (``costs``), and functions of the
rules (``rules``). Imports neither torch nor Snakemake.
"""

#: nothing in this package changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True
