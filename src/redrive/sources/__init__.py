"""Where tasks come from besides the API: the queues of RabbitMQ."""
