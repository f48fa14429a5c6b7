"""reencrypt: what is stored of a user, encrypted anew with the present key."""

from __future__ import annotations

from typing import Annotated

import typer

from strands_manga_memory.cli.options import CodecName, Durable, Json, Tenant, Users, opened, settings_of
from strands_manga_memory.cli.output import advance, print_json, print_table, progress


def reencrypt(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")],
    tenant: Tenant = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Encrypt everything there is of a user with the present key, so that an earlier one can be given up."""
    if codec is None:
        raise typer.BadParameter("--codec is needed: the application's codec, as package.module:name")
    memory = opened(settings_of(durable=durable, users=users), codec)
    with progress("sessions") as shown:
        counts = memory.reencrypt_user(user, tenant=tenant, progress=lambda _: advance(shown))
    memory.close()
    if as_json:
        print_json(counts)
    else:
        print_table(f"Encrypted anew of {user}", ("what", "how many"), list(counts.items()), right=(1,))
