"""The daemon's configuration: one TOML file, refused whole if anything is wrong."""
