"""tickwheel's timer beside every timer that a Python program would take instead.

    python -m benches.python.timers

Each work is done in a new process, so that no side works on a heap, or with a state of the garbage collector, that
another has left. The sides take turns at each work, in another order in each repeat, so that no side has the quiet
moments to itself. The garbage collector stays on unless a work says otherwise.

- `side`: what a work knows of a timer; `sides/`: one module for each kind of timer
- `works/`: what is measured, and the table of it; the delays and instants are random from a fixed seed
- `measure`: one work on one side, in the process that `__main__` starts for it
- `records`: the results as JSON, for `benches.report`, and as a table

Delays are spread over an hour, after a first minute in which nothing is due. Slow sides get fewer timers, and so do the
works in real time: each record has its own count.
"""
