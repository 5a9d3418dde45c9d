"""Tables of papers with our numbers and the published ones, in four formats."""
