"""Run a workload under faults, and compare its ledger with the records that consumers received.

A cell is one run of one way of sending under one fault. The writers log each event in a ledger outside the system under
test, and an observer logs each record that it receives. The verdict counts lost, phantom, early, duplicated and
unordered events. See docs/drill.md.
"""
