"""What commands of the production example ask of the environment."""

SECRETS = {
    "OUTBOX_ADMIN_PASSWORD": "admin-s3cret",
    "OUTBOX_KAFKA_PASSWORD": "kafka-s3cret",
    "OUTBOX_REGISTRY_PASSWORD": "registry-s3cret",
}
