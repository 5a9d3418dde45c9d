"""How figures are drawn: styles, lines of means, panels of points."""
