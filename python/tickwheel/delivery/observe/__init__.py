"""Shows a run to people and to other programs: log, traces, dead letters, progress."""
