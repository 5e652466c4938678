"""What the processes of the daemon share: sockets, memory and the options they start with."""
