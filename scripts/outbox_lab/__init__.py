"""Run the fault drill, and generate reference documents. This package is not part of any distribution."""
