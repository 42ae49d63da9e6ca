"""What is on disk: replicas and their files, framed and checked; which batch is held by whom; bronze rows."""
