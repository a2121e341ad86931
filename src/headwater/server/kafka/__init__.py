"""The door for Kafka clients: connections, who may do what, one small file per family of APIs."""
