"""tickwheel's delivery beside job queues; `docs/internals/queues.md` has the figures and the settings."""
