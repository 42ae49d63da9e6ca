"""Small quorums, explored completely: every order of messages, timers and faults within bounds."""
