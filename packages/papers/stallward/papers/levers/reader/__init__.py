"""A process that reads pages in from within the group that they are charged to."""
