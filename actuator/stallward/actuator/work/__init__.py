"""Where the background's work is counted: a file, a Prometheus counter, a command."""
