"""Delivery at a steady rate, everything included: accepted durably, delivered to a file, a function or a webhook."""
