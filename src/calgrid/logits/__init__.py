"""People's own logits and arrays: reading, calibrating, ranking, comparing."""
