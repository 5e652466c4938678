"""In-memory stores with several server threads: an ordered one and a transactional one."""
