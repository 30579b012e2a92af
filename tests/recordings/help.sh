# Help, of all and of one command.
"$SPONSON" help
"$SPONSON" help up
