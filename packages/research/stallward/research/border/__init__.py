"""What a part of the application's memory costs the application and gives the background."""
