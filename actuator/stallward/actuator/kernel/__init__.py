"""The kernel's objects by name: files, cgroups, processes, threads."""
