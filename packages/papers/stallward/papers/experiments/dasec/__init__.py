"""The experiment of DASEC, repeated in a sandbox."""
