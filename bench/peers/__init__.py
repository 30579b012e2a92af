"""The candidates: each module starts one proxy in the shapes that it can take, before one backend."""
