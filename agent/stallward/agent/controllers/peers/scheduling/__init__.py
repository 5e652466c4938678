"""Controllers of the protected application's own threads."""
