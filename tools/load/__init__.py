"""What stays behind when the engine works for hours, or sessions come and go: `python -m tools.load`."""
