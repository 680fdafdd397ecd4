"""HTTP/1.1 on sockets: connections, their limits, listening. Knows an application only as something that answers."""
