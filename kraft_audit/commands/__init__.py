"""One file a command. What they share: `ending` (how one ends), `arguments`, `results` (what lies below PATH)."""
