"""Components by kind and name, plugins, and fingerprints of source code."""

#: nothing in this package changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True
