"""What every room of delivery uses: errors, files that hold secrets, standard error, and files that are appended to."""
