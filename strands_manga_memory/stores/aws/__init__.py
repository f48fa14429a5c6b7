"""DynamoDB, S3 and KMS."""
