"""Shared by all folders of delivery: errors, files with secrets, standard error, and files that are appended to."""
