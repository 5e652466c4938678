"""The guardian: the parent process, which holds the journal and undoes everything in it.

It starts the daemon's other processes and watches the loop.
"""
