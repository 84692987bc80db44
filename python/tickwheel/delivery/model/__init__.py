"""What goes in and comes out: messages, answers, settings, counts. Plain values, no threads."""
