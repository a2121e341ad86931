"""Reading the files of Kafka's shared log, and giving their space back."""
