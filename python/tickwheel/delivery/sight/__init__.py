"""Shows the contents of a store (rule D14): pages of messages and dead letters, a single message, and the state.

Every call reads the file as it is at one moment, also while another process delivers, and changes nothing. Each answer
is bounded: one call looks at `LOOKED_AT` messages. A page says where the next page begins, also if it is not full.

Other code uses `view`, so Python, HTTP and the command line offer the same.
"""

from tickwheel.delivery.sight.actions import Action
from tickwheel.delivery.sight.destinations import DestinationPage, Destinations, DestinationSeen, DestinationShown
from tickwheel.delivery.sight.letters import LetterPage, LetterSeen
from tickwheel.delivery.sight.messages import Details, Page, Rule, Seen, State
from tickwheel.delivery.sight.status import InDoubt, KeyInDoubt, Replication, StoreStatus
from tickwheel.delivery.sight.tenants import TenantPage, TenantSeen
from tickwheel.delivery.sight.view import NoStore, StoreView

__all__ = [
    "Action",
    "DestinationPage",
    "DestinationSeen",
    "DestinationShown",
    "Destinations",
    "Details",
    "InDoubt",
    "KeyInDoubt",
    "LetterPage",
    "LetterSeen",
    "NoStore",
    "Page",
    "Replication",
    "Rule",
    "Seen",
    "State",
    "StoreStatus",
    "StoreView",
    "TenantPage",
    "TenantSeen",
]
