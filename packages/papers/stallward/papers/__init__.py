"""The founding documents: their controllers, and their experiments repeated on this machine."""
