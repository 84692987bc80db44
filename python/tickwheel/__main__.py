"""`python -m tickwheel` is the command `tickwheel`."""

from tickwheel.cli import main

if __name__ == "__main__":
    main()
