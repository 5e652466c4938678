"""Programs that run in the background of scenarios, and what makes their input."""
