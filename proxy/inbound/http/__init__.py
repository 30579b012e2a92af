"""Steps of a request, in their order: requests.py (all of them, a line each), authorize.py (whether this client may send it),
filters.py (the answers of filters), local.py (the app's connections); rescue.py answers when one of them fails."""
