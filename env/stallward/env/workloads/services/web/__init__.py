"""Services behind what people see in a browser: pages in PHP, tiles of a map, graphs of series."""
