"""What the code costs, as ratios to a peer or a floor measured in the same run. Never part of the tests."""
