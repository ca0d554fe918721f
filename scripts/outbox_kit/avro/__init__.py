"""What the deploy tool and the Spark jobs both know of Avro schemas.

Needs nothing but the standard library at import: it goes into the zip of the jobs.
"""
