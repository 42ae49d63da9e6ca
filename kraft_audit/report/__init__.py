"""Static pages about a fleet, and findings and metrics as files for other tools."""
