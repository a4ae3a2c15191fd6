"""The claims of the paper, one pytest module each; claims.toml declares what they judge: `pytest claims/`."""
