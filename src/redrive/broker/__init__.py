"""RabbitMQ as sources and destinations need it: connections, properties, confirmed publishing, topology.

Needs the extra `rabbitmq` (aiormq).
"""
