"""Report: shows the control plane's state to people: objects with their file and line, watchers, and ages."""
