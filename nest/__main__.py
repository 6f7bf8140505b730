"""``python -m nest``: the command line, where its script is not on the path."""

from nest.cli import main

main()
