"""What a plan names is read and written into data files: by which tasks, and what is kept for the next hour."""
