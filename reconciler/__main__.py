"""`python -m reconciler` is the same as the `reconciler` command."""

from reconciler.cli.app import main

if __name__ == "__main__":
    main()
