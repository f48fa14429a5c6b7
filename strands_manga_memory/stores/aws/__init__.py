"""DynamoDB."""
