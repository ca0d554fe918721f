# Source this file in the folder of an example, while the embedded stack of this checkout runs (`outbox stack up`).
# Exports the addresses of the stack, and links its state file, which the environment `local` reads.
checkout=$(cd ../../.. && pwd)
export PATH="$checkout/.venv/bin:$PATH"
mkdir -p build
ln -sfn "$checkout/build/stack" build/stack
address() {
  (cd "$checkout" && outbox stack status --output json) | python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}
DATABASE_URL=$(address postgres) KAFKA=$(address kafka) REGISTRY_URL=$(address registry)
export DATABASE_URL KAFKA REGISTRY_URL
