"""Single fields that mean the same in both HTTP versions: the date, the authority, the protocols of an upgrade."""
