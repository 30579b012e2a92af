"""The candidates: each module starts one proxy in the shapes that it can take, in front of one backend."""
