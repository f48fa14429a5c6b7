"""S3Objects: values that are too large for a record of DynamoDB, in a bucket of Amazon S3."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

from strands_manga_memory.lazy import expression
from strands_manga_memory.stores.aws.aws_errors import code_of, translated

_GONE = {"NoSuchKey", "404"}
_NAME = expression(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class S3Objects:
    """Objects of a bucket, each written once and never changed.

    Args:
        client: ``boto3.client("s3")``. Its own retries and timeouts count; an object written twice is the same object.
        bucket: Name of the bucket, which is there already. Without versioning, deleted objects are gone.

    Raises:
        ValueError: ``bucket`` is no name of a bucket.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        if not _NAME.fullmatch(bucket):
            raise ValueError(f"bucket must be 3 to 63 of the characters a-z 0-9 . -, got {bucket!r:.80}")
        self._client = client
        self.bucket = bucket

    def __repr__(self) -> str:
        return f"S3Objects({self.bucket!r})"

    def put(self, key: str, data: bytes) -> None:
        """Store an object.

        Raises:
            StoreUnavailableError: The service does not answer, or refuses.
        """
        self._call("put_object", Key=key, Body=data, ContentType="application/octet-stream")

    def get(self, key: str) -> bytes | None:
        """Return an object, or None.

        Raises:
            StoreUnavailableError: The service does not answer, or refuses.
        """
        found = self._call("get_object", Key=key)
        try:
            return None if found is None else bytes(found["Body"].read())
        except Exception as error:  # the connection may end within the body
            raise translated(error, f"bucket=<{self.bucket}>") from error

    def delete(self, key: str) -> None:
        """Delete an object, if it is there.

        Raises:
            StoreUnavailableError: The service does not answer, or refuses.
        """
        self._call("delete_object", Key=key)

    def _call(self, operation: str, **request: Any) -> Any:
        try:
            return getattr(self._client, operation)(Bucket=self.bucket, **request)
        except Exception as error:
            if code_of(error) in _GONE:
                return None
            raise translated(error, f"bucket=<{self.bucket}>") from error


def s3_client(*, region: str | None = None, endpoint: str | None = None) -> Any:
    """Return a client: three tries, timeouts of 2 s to connect and 10 s to read, up to 50 connections.

    Args:
        region: AWS region. Default: that of the AWS configuration.
        endpoint: URL of the service. Default: that of AWS.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=2, read_timeout=10, max_pool_connections=50
    )
    return boto3.session.Session().client("s3", region_name=region, endpoint_url=endpoint, config=config)
