"""A shop: an order and its reminder are stored in one transaction, by SQLAlchemy, and the reminder comes later.

The second order is rolled back, as its customer has no money. So there is no reminder of it either.

    python examples/outbox_sqlalchemy.py
"""

import queue
import tempfile

from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tickwheel.delivery import Delivery, DeliveryQueue
from tickwheel.delivery.outbox import create_table, enqueue


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]


def place(session: Session, customer: str, cents: int) -> None:
    """Store an order, and that its customer is to be reminded; the caller commits."""
    order = Order(customer=customer, cents=cents)
    session.add(order)
    session.flush()  # gives it its id
    enqueue(session, {"id": f"reminder {order.id}", "key": customer, "delay_ms": 300, "payload": {"pay": cents}})
    if cents > 10_000:
        raise ValueError(f"{customer} has not so much money")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/shop.db")
        with Session(engine) as session:
            Base.metadata.create_all(session.connection())
            create_table(session)  # in a real shop a migration does both
            session.commit()

        arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        with DeliveryQueue(f"{folder}/reminders.db", to=arrived.put, outbox=f"sqlite:{folder}/shop.db"):
            for customer, cents in (("Ada", 1_500), ("Bob", 2_000_000), ("Cem", 700)):
                try:
                    with Session(engine) as session, session.begin():
                        place(session, customer, cents)
                except ValueError as error:
                    print(f"rolled back: {error}")
                else:
                    print(f"stored: the order of {customer}")
            for _ in range(2):
                delivery = arrived.get(timeout=10)
                payload = bytes(delivery.message.payload).decode()
                print(f"{delivery.message.id} of {delivery.message.key}: {payload}")
        with Session(engine) as session:
            print("orders:", ", ".join(session.scalars(select(Order.customer).order_by(Order.id))))
        engine.dispose()


if __name__ == "__main__":
    main()
