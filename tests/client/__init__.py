"""The delivering client and its guards, against raw servers on real sockets."""
