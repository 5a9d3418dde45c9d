"""Tables of wrong configurations: a line of YAML, and below it what is said of it."""

import yaml


def cases(text):
    """Values for ``parametrize``: what the YAML of a line says, and the indented lines below it, in
    which `` ... `` stands for words that are left out.
    """
    found = []
    for line in filter(None, text.splitlines()):
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        else:
            found.append((yaml.safe_load(line), []))
    return found
