"""The one strict reader: TOML or JSON to frozen dataclasses, and back."""
