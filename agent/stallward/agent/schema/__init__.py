"""The strict reader and the writer of the project: TOML or JSON to frozen dataclasses and back."""
