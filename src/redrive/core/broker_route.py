"""Where a message goes in RabbitMQ: an exchange and a routing key, what they may be, and how people see them. Pure.

Used by api.endpoint_input and the command line for endpoints, by the destinations that publish.
"""

from urllib.parse import quote

MAX_NAME_BYTES = 255  # of an exchange, a routing key, a header's name: AMQP counts them in one byte
DEFAULT_EXCHANGE = ""  # brings a message to the queue that its routing key names
SCHEME = "rabbitmq://"


def is_short(text: str) -> bool:
    """Whether AMQP can carry it as a name."""
    return len(text.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES


def key_problem(exchange: str | None, routing_key: str | None) -> str | None:
    """Why an endpoint cannot have this routing key; None where it can. No key: each event's type is its key."""
    if exchange == DEFAULT_EXCHANGE and not routing_key:
        return "is needed for the default exchange: it names the queue"
    return None


def route_url(exchange: str, routing_key: str) -> str:
    """What stands where others have a URL. Nothing in it is secret: not where the broker is, nor who speaks to it."""
    return f"{SCHEME}{quote(exchange, safe='')}/{quote(routing_key, safe='')}"


def is_route(url: str) -> bool:
    return url.startswith(SCHEME)


def route_text(exchange: str, routing_key: str | None) -> str:
    """The same for people to read."""
    named = exchange or "(default exchange)"
    return f"{named} → {'(event type)' if routing_key is None else routing_key or '(empty key)'}"
