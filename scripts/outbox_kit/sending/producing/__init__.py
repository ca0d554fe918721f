"""Ways of sending in which a service produces to Kafka itself, beside its database transaction.

    direct            send after or before the commit: loses records, or announces changes that did not happen
    chained           a Kafka transaction and a database transaction, one after the other; with a recovery store
    delivery proof    rows of the business transaction, deleted when the destination topic shows the record
    two-phase         PREPARE TRANSACTION, commit in Kafka, COMMIT PREPARED

The connector is the recommended way (`emit`). See docs/ways-without-a-connector.md for guarantees and costs.
"""

from outbox_common.extras import extra

with extra("kafka"):
    from outbox_kit.sending.producing import delivery_proof, recovery_store, two_phase
    from outbox_kit.sending.producing.chained import ChainedSender
    from outbox_kit.sending.producing.delivery import Deliveries
    from outbox_kit.sending.producing.delivery_proof import DeliveryProof
    from outbox_kit.sending.producing.direct import DirectSender, DirectTransaction
    from outbox_kit.sending.producing.errors import (
        NotCommittedError,
        NotDeliveredError,
        ProducerUnusableError,
        UnknownOutcomeError,
    )
    from outbox_kit.sending.producing.kafka_transaction import KafkaTransaction, fence
    from outbox_kit.sending.producing.order import Order
    from outbox_kit.sending.producing.recovery import Recovered, recover
    from outbox_kit.sending.producing.recovery_store import RecoveryStore
    from outbox_kit.sending.producing.two_phase import Resolved, TwoPhaseSender

__all__ = [
    "ChainedSender",
    "Deliveries",
    "DeliveryProof",
    "DirectSender",
    "DirectTransaction",
    "KafkaTransaction",
    "NotCommittedError",
    "NotDeliveredError",
    "Order",
    "ProducerUnusableError",
    "Recovered",
    "RecoveryStore",
    "Resolved",
    "TwoPhaseSender",
    "UnknownOutcomeError",
    "delivery_proof",
    "fence",
    "recover",
    "recovery_store",
    "two_phase",
]
