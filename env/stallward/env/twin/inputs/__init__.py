"""The inputs of a twin: exogenous description, parameters, and files of fitted twins."""
