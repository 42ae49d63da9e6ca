"""What reading one plan leaves for the next, so that bytes are read once: where logs stood, what the survey knew."""
