"""HTTP requests of the app, in the order in which a request meets the files: logical.py (route), concrete.py (backend),
endpoint.py (connection); rescue.py answers when one of them fails, filters.py when a filter of the route or backend does."""
