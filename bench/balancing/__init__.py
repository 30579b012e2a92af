"""How balancing policies share requests out over endpoints of different speed, one of which hangs for a while."""
