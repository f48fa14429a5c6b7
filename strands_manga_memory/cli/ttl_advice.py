"""placeholder"""


def ttl_advice() -> None: ...
