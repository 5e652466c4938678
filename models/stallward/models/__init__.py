"""Shipped policies, fitted twins and thresholds of rules, and the controllers that use them."""
