"""Steps of a request, in their order: requests.py (all of them, a line each), authorize.py (may this client), filters.py (what
it hears when a filter answers), local.py (the app's connections); rescue.py answers when one of them fails."""
