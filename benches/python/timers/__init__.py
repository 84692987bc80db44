"""tickwheel's timer beside the timers that a Python program could use instead.

    python -m benches.python.timers

Each work runs in a new process, so that no side starts with the heap or the state of the garbage collector that another
side has left. The sides take turns at each work, and each repeat begins with another side, so that no side always has a
quiet machine. The garbage collector is on unless a work turns it off.

- `side`: a timer as the works see it; `sides/`: one module for each kind of timer
- `works/`: what is measured, and the table of it; delays and instants are random, from a fixed seed
- `measure`: one work on one side, in the process that `__main__` starts for it
- `../suite`, `../records`: runs the works, and writes the results as JSON, for `benches.report`, and as a table

Delays are spread over an hour, after a first minute in which nothing is due. Slow sides get fewer timers, and so do
works in real time: each record has its own count.
"""
