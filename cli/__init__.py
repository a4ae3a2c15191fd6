"""The `cflow` command. It may import every other package; nothing imports it."""
