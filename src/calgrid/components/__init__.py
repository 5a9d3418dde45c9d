"""Components by kind and name, plugins, and fingerprints of source code."""
