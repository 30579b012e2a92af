"""The admin server on :4191."""
