"""What is measured from outside while programs run: groups, steal time, the whole machine."""
