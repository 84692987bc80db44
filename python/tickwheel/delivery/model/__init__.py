"""The values that go in and come out: messages, answers, settings, counts. Plain values, no threads."""
