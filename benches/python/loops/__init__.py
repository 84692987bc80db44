"""Event loops whose timers are in a wheel (`tickwheel.aio.new_event_loop`) beside the same loops with their own timers.

    python -m benches.python.loops

Each work is done on asyncio's loop and, under another name, on uvloop's, and on each of both with and without the
wheel, in a process of its own. Delays are random, from a fixed seed.

- `sides`: how to make the loops
- `works`: what is measured, and the table of it; `serving`: the works with sockets
- `measure`: one work on one side, in the process that `../suite.py` starts for it
"""
