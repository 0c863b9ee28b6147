#!/usr/bin/env bash
# Run the embedded cascade on recorded back-end answers and gate it against the committed baseline.
#
#   examples/ci/pre-merge.sh record     once: record cassettes, set the baseline; commit both folders
#   examples/ci/pre-merge.sh            before every merge
#   examples/ci/pre-merge.sh gate RUN   only gate a run that exists
#
# Exit codes are those of `kamebench gate`: 0 pass, 1 regression, 2 usage or unreadable input, 3 inconclusive;
# a run that cannot be made ends with the code of `kamebench run` (2 or 3).
set -euo pipefail

CASSETTES=${CASSETTES:-ci/cassettes}
BASELINES=${BASELINES:-ci/baselines}
RESULTS=${RESULTS:-ci/results}
REPORTS=${REPORTS:-ci/reports}
NAME=${NAME:-main}
RULES=${RULES:-}
RUN_OPTIONS=${RUN_OPTIONS:---system cascade --task spoken-basics}

# Prints the folder of a new run.
run() {
  local result
  # shellcheck disable=SC2086  # options are words
  result=$(kamebench run $RUN_OPTIONS --results "$RESULTS" --json "$@") || {
    local code=$?
    return $((code == 1 ? 3 : code)) # 1 is a crash here; for the caller it would mean a regression
  }
  python3 -c 'import json, sys; print(json.load(sys.stdin)["run"])' <<<"$result" || return 2
}

gate() {
  rm -f "$REPORTS/gate.md" "$REPORTS/gate.xml"
  kamebench gate "$1" --baseline "$NAME" --baselines "$BASELINES" ${RULES:+--rules "$RULES"} \
    --junit "$REPORTS/gate.xml" --markdown "$REPORTS/gate.md"
}

case "${1:-check}" in
record)
  run --record "$CASSETTES" >/dev/null
  # The baseline is played from the cassettes too, as every later run will be.
  played=$(run --backend "replay:$CASSETTES")
  kamebench baseline set "$played" --name "$NAME" --baselines "$BASELINES"
  ;;
check)
  played=$(run --backend "replay:$CASSETTES")
  gate "$played"
  ;;
gate)
  gate "${2:?give the folder of a run}"
  ;;
*)
  echo "usage: $0 [record | check | gate RUN]" >&2
  exit 2
  ;;
esac
