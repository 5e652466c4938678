"""The parent process: holds the journal, starts and watches the others, undoes."""
