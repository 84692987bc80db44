"""The interface for Python programs: `DeliveryQueue` and `AsyncDeliveryQueue`; and control for the command line."""
