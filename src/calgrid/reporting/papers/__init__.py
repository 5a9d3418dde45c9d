"""Tables of papers with our numbers beside the published ones, in four formats."""
