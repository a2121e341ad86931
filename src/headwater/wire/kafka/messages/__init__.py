"""The fields of each request and response, under Kafka's own names."""
