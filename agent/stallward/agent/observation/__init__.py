"""The one definition of the features, their units, normalisation and history."""
