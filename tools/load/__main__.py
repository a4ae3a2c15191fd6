"""`python -m tools.load decode|sessions|smoke`."""

from tools.load.command import main

main()
