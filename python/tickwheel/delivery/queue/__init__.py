"""What a Python program uses: `DeliveryQueue` and `AsyncDeliveryQueue`, and their control of messages."""
