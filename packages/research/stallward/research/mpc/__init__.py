"""Model-predictive control with the scenario's twin."""
