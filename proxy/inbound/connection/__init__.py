"""Steps of an accepted connection, in their order: accept.py (where it wanted to go), arrival.py (is it TLS for us), then
server.py (a port of the app), direct.py (our own port) or admin.py; bytes are forwarded by opaque.py if authorize.py permits."""
