"""The experiments of the latd thesis, repeated in a sandbox."""
