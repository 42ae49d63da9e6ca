"""One file a command. What they share: `ending` (exit codes), `arguments`, `reading` (what lies below PATH)."""
