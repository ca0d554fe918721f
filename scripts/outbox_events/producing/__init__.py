"""Ways of sending in which a service produces to Kafka itself, beside its database transaction.

    chained           a Kafka transaction and a database transaction, one after the other; with a recovery store
    delivery proof    rows of the business transaction, deleted when the destination topic shows the record
    two-phase         PREPARE TRANSACTION, commit in Kafka, COMMIT PREPARED

The connector is the recommended way (`emit`). See docs/ways-without-a-connector.md for guarantees and costs.
"""
