"""What is in a store (rule D14): pages of its messages and dead letters, one message, and its state.

All of it reads one moment of the file, also while another process delivers, and changes nothing. Each answer is
bounded: a page says where the next one begins, also if it is not full, because one call looks at `LOOKED_AT` messages.

`view` is what others use: Python, HTTP and the command line are offered the same.
"""

from tickwheel.delivery.sight.actions import Action
from tickwheel.delivery.sight.letters import LetterPage, LetterSeen
from tickwheel.delivery.sight.messages import Page, Rule, Seen, State
from tickwheel.delivery.sight.one import Details
from tickwheel.delivery.sight.status import StoreStatus
from tickwheel.delivery.sight.view import NoStore, StoreView

__all__ = [
    "Action",
    "Details",
    "LetterPage",
    "LetterSeen",
    "NoStore",
    "Page",
    "Rule",
    "Seen",
    "State",
    "StoreStatus",
    "StoreView",
]
