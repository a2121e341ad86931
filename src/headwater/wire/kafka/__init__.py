"""The Kafka protocol, without sockets: frames, headers, and messages from tables of fields."""
