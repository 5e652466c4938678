"""The parts of every lever: interface, held settings, originals, worker thread."""
