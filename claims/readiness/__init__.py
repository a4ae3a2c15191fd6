"""`cflow doctor` without its printing: what this machine and installation can show of the claims."""
