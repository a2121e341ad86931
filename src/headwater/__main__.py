"""`python -m headwater` is the command `headwater`, for whoever has no path to it."""

from headwater.cli import main

if __name__ == "__main__":
    main()
