"""Writes NDJSON to standard output, a block every 20 ms: the load, made outside of the process that is measured.

    python -m benches.python.delivery.generator RATE SECONDS [FIELD:COUNT] [FIRST_DUE_MS LAST_DUE_MS]

A block is its size in 4 bytes, and then its lines. Messages are due one to three seconds after they were written, or
between the two times. Ids are never used twice; keys are 5,000; a payload has 95 bytes. `tenant:1000`: each has this
field too, one of so many texts.
"""

import sys
import time
from struct import Struct

BLOCK_S = 0.02
KEYS = 5_000
SIZE = Struct("<I")
PAYLOAD = '{"to":"somebody","text":"' + "x" * 69 + '"}'


def main(rate: int, seconds: float, *between_ms: int, field: str = "") -> None:
    """Write until the time is over."""
    name, _, count = field.partition(":")
    run, number, start = time.time_ns(), 0, time.monotonic()
    of_block = round(rate * BLOCK_S)
    out = sys.stdout.buffer
    for tick in range(round(seconds / BLOCK_S)):
        if not between_ms:
            time.sleep(max(0, start + tick * BLOCK_S - time.monotonic()))
        now_ms = time.time_ns() // 1_000_000
        first_ms, last_ms = between_ms or (now_ms + 1000, now_ms + 3000)
        span_ms = max(1, last_ms - first_ms)
        lines = "".join(
            f'{{"id":"{run}-{n}","key":"key {n % KEYS}","due":{first_ms + n * 7919 % span_ms},"payload":{PAYLOAD}'
            + (f',"{name}":"{n % int(count)}"}}\n' if name else "}\n")
            for n in range(number, number + of_block)
        ).encode()
        number += of_block
        out.write(SIZE.pack(len(lines)) + lines)
        out.flush()


if __name__ == "__main__":
    _, per_second, most_s, *others = sys.argv
    fields = [it for it in others if ":" in it]
    main(int(per_second), float(most_s), *(int(it) for it in others if it not in fields), field="".join(fields))
