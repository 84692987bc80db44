"""Inputs: files, folders and batches, read to records. The formats themselves are read in Rust."""
