"""The documents: the site of docs/, the references that are generated into it, and the tutorial's output."""
