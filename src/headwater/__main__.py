"""`python -m headwater` is the command `headwater`, where that is not on the path."""

from headwater.cli import main

if __name__ == "__main__":
    main()
