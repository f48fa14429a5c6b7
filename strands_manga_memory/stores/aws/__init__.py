"""DynamoDB and S3."""
