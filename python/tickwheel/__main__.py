"""`python -m tickwheel` is the command `tickwheel`."""

from tickwheel.cli import main

main()
