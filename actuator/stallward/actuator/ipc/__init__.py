"""What the processes of the daemon share: sockets, memory, and the options at their start."""
