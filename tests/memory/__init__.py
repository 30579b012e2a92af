"""What a peer can make this process hold, and for how long: closed connections, remembered texts, labels, descriptors."""
