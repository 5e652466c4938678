"""What a twin is given: parameters, exogenous description, fitted sets."""
