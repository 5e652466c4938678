"""Studies of the product, for who researches it. Nothing of the core imports them."""
