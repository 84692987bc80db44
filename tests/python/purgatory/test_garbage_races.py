"""Border rule 8 against the clock: what the collector sees of a timer must not depend on what its reaper does."""

from purgatory.scripts import run_script


def test_the_collector_never_takes_apart_what_a_live_timer_still_calls__rule8():
    """It looks at each object twice. Where a timer shows its `on_error` the first time and not the second, since its
    reaper has the lock at that moment, a function that is alive counts as garbage: its weak references die first."""
    run_script(
        """
gc.disable()
gc.collect()
gc.freeze()  # the rest of the process: a collection takes microseconds

def make():
    calls = []

    def on_error(*error):
        calls.append(error)

    return SystemTimer("x", on_error=on_error, slack_us=0), weakref.ref(on_error)

made = [make() for _ in range(30)]
delays = [4 * 20**level * number for level in (2, 1, 0) for number in range(19, 1, -6)]
end = time.monotonic() + 6
while time.monotonic() < end:
    for timer, _ in made:
        for delay_ms in delays:
            timer.after(delay_ms, nop).cancel()  # wakes its reaper, which has empty buckets to throw away
    gc.collect()
    assert all(on_error() for _, on_error in made), "collected, while its timer is alive"
for timer, _ in made:
    timer.shutdown(0)
""",
        timeout=60,
    )
