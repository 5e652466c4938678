"""How small the memory of a node may be, by who controls it."""
