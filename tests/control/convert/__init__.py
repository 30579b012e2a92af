"""From protobuf to the models."""
