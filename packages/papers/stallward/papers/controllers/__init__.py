"""The controllers that the documents describe, and those that they compare with."""
