"""The only definition of the features, their units, normalisation and history."""
