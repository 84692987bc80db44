"""The store and ledger of delivery: one SQLite file that survives every crash (rules D5, D7, D9)."""

from tickwheel.delivery.store.store import Done, Incoming, Known, Outcome, Position, Store, Waiting

__all__ = ["Done", "Incoming", "Known", "Outcome", "Position", "Store", "Waiting"]
