"""Messages of the control plane into the models of policy/ and balance/. Pure: no I/O, no clocks, no logs."""
