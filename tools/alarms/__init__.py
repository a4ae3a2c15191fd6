"""How often the timed checks raise a false alarm, and which effects they see: `python -m tools.alarms`."""
