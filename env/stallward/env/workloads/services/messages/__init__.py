"""Services that keep messages and give them back: a mail server, a broker."""
