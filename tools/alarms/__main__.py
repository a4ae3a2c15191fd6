"""`python -m tools.alarms collect|false|live`: false alarms and power of the timed checks."""

from tools.alarms.command import main

main()
