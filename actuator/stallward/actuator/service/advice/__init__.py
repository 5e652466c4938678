"""What policies in advice mode would do: kept, sent to clients, written to the journal."""
