"""Runs the Rust engine from Python, reads its outcomes, and does the upkeep of stores."""
