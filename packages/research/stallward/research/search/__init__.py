"""Searches of training recipes by Optuna."""
