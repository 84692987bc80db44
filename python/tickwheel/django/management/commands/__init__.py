"""Each command is a module."""
