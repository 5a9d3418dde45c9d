"""Tables of mistakes: what is wrong in a line, and below it what is said of it."""

import yaml


def cases(text, read=yaml.safe_load):
    """Values for ``parametrize``: what ``read`` makes of a line, and the indented lines below it,
    in which `` ... `` stands for words that are left out.
    """
    found = []
    for line in filter(None, text.splitlines()):
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        else:
            found.append((read(line), []))
    return found
