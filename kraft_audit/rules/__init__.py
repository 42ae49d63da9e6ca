"""The findings: what was unsafe, when, and why, as pure functions over replayed histories."""
