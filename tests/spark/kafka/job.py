"""The driver of a query from Kafka to a deliverer, as a user writes it. It is a process of its own, so that it can be
killed, and because Spark's jars are chosen at the start. It prints `batch: R read, H held` for each micro-batch, where
held are also messages of which the deliverer has not told the outcome. It ends with its input.
"""

import sys
import threading

from tickwheel.spark import HandOff, hold, laptop_session, parse_lines, read_kafka

LEAD_MS = 3_000


def main() -> None:
    jars, brokers, topic, deliverer, token, checkpoint = sys.argv[1:]
    session = laptop_session("kafka", {"spark.jars": jars})
    records = read_kafka(session, brokers, topic, {"maxOffsetsPerTrigger": "500"})
    near = hold(parse_lines(records), LEAD_MS)
    hand_off = HandOff([deliverer], token.encode())
    query = (
        near.writeStream.foreachBatch(hand_off)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    is_over = threading.Event()

    def wait_for_the_end_of_input() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end_of_input, daemon=True).start()
    last = -1
    while not is_over.wait(0.1):
        if not query.isActive:
            raise SystemExit(f"the query failed: {query.exception()}")
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > last:
            last = progress["batchId"]
            held = hand_off.report.waiting + hand_off.report.given
            # Not the hold's own source, which has a tick for each shard.
            read = sum(it["numInputRows"] for it in progress["sources"] if it["description"].startswith("Kafka"))
            print(f"batch: {read} read, {held} held", flush=True)
    query.stop()
    session.stop()
    hand_off.close()


if __name__ == "__main__":
    main()
