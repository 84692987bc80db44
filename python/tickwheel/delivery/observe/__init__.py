"""What a person or another program sees of a run: log, traces, dead letters, progress, signals."""
