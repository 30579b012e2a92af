"""What HTTP and opaque TCP share below a route: the split over services, the load and the reach of an endpoint, its dialling."""
