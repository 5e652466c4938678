"""What every process of the daemon needs: its start, its set-up, locks, addresses and folders."""
