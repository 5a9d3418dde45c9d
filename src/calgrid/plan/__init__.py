"""From a study to jobs: specifications and fingerprints (``plan``), pending jobs (``pending``),
requested resources (``resources``), cost estimates (``costs``), and functions of the rules
(``rules``). Imports neither torch nor Snakemake.
"""

#: nothing in this package changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True
