# The demo as a person sees it: a replica is killed, taken out, and comes back.
"$SPONSON" demo --kill 6s --rps 60 --duration 22s || true  # a request may be under way when its replica is killed
