"""Define the lint rules, with one module per subject. `linting.loading` loads the input of the rules."""
