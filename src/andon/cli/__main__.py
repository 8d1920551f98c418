"""`python -m andon.cli`: the same as the `andon` command."""

from andon.cli import main

if __name__ == "__main__":
    main()
