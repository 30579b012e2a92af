"""What every connection has, whatever it speaks: a way to be dialled, counted, found idle and drained."""
