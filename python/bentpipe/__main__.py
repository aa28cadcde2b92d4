"""`python -m bentpipe` is the command `bentpipe`."""

from bentpipe.cli import main

if __name__ == "__main__":
    main()
