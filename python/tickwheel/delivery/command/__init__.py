"""One run of `tickwheel deliver`: options checked, inputs read, the job, how it ended."""
