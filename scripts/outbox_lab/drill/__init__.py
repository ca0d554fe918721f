"""Fault drill: a workload under faults, whose ledger is compared with the records that consumers saw.

A cell is one way of sending under one fault. The writers note each event in a ledger outside of the system under test,
an observer notes each record, and the verdict counts lost, phantom, early, duplicated and unordered events. See
docs/drill.md.
"""
