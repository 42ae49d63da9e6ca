"""Random runs and scenarios: from a seed to log dirs, with the truth beside them."""
