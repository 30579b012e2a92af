"""From texts to values: syntaxes, the table of variables, and the reader that collects what is wrong."""
