"""What the processes of the daemon share: sockets and memory."""
