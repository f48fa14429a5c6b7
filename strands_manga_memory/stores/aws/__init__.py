"""Table in Amazon DynamoDB, with its requests and its data format."""
