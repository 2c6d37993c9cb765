"""Entry point of `python -m codecnn` and `torchrun -m codecnn`."""

from codecnn.cli import main

main()
