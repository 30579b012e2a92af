"""The series of each family: how many there may be (bounds.py), how long they are kept (table.py), their numbers for another process (snapshot.py)."""
