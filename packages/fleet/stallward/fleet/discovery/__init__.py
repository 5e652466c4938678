"""Where the nodes of a fleet are: named in a file, in the DNS, or endpoints of a Service."""
