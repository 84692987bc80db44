"""A program for each queue; `common.py` says what a program does."""
