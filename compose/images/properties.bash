# Properties from environment variables, as in the official images of Kafka.

# properties PREFIX EXCLUDED...: print the variables that start with PREFIX as a Java properties file.
# PREFIX_A_B becomes a.b, `__` becomes `_`, `___` becomes `-`. EXCLUDED variables are options of the JVM, not properties.
properties() {
  local prefix=$1 entry name value key excluded
  excluded=" ${*:2} "
  while IFS= read -r -d '' entry; do
    name=${entry%%=*} value=${entry#*=}
    [[ $name == "$prefix"* && $excluded != *" $name "* ]] || continue
    key=${name#"$prefix"}
    key=${key//___/-}
    key=${key//__/$'\x01'}
    key=${key//_/.}
    key=${key//$'\x01'/_}
    value=${value//\\/\\\\}
    value=${value//$'\n'/\\n}
    [[ $value != [[:blank:]]* ]] || value=\\$value
    printf '%s=%s\n' "${key,,}" "$value"
  done < <(env -0 | LC_ALL=C sort -z)
}

# Options of every JVM. A JVM that ran out of memory exits; the engine restarts it.
jvm_options=(-XX:+ExitOnOutOfMemoryError -Dfile.encoding=UTF-8 -Djava.awt.headless=true)
log4j_options=(-Dlog4j2.configurationFile=file:/opt/outbox/log4j2.properties)
