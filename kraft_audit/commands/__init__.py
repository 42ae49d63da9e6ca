"""One file a command. What they share: `ending` (how one ends), `arguments`, `reading` (what lies below PATH)."""
