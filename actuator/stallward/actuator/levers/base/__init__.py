"""What every lever is made of: interface, held settings, originals, worker thread."""
