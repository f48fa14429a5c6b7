"""The template makes the tables that create_if_missing makes."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from strands_manga_memory import SESSIONS, USER_MEMORY, DynamoDBTable
from strands_manga_memory.ops import cloudformation_yaml
from tests import servers


def test_the_template_is_what_create_if_missing_makes(
    dynamodb_server: servers.DynamoDB, unique: str
) -> None:
    client = dynamodb_server.client()
    table = DynamoDBTable(client, USER_MEMORY, name=unique)
    table.create_if_missing()
    made = client.describe_table(TableName=unique)["Table"]
    template: dict[str, Any] = yaml.safe_load(
        cloudformation_yaml(replace(USER_MEMORY, name=unique), SESSIONS)
    )
    properties = next(
        resource["Properties"]
        for resource in template["Resources"].values()
        if resource["Properties"]["TableName"] == unique
    )
    assert properties["KeySchema"] == made["KeySchema"]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    wanted = {i["IndexName"]: i["KeySchema"] for i in properties["GlobalSecondaryIndexes"]}
    assert wanted == {i["IndexName"]: i["KeySchema"] for i in made["GlobalSecondaryIndexes"]}
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert set(template["Resources"]) == {f"{unique.capitalize()}Table", "MangaSessionsTable"}


def test_two_tables_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="with distinct names"):
        cloudformation_yaml(SESSIONS, SESSIONS)
    with pytest.raises(ValueError, match="at least one"):
        cloudformation_yaml()
