# SPDX-License-Identifier: Apache-2.0
# Helpers of the command-line tests; sourced with BUILD as $1.
set -uo pipefail
tacit=$1/tacit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TACIT_STATE_HOME=$work/state
passed=0
failed=0
# check NAME EXIT-CODE PATTERN COMMAND...: the code, and a grep -E pattern in its output
check() {
    local name=$1 code=$2 pattern=$3 out got
    shift 3
    out=$("$@" 2>&1)
    got=$?
    if [ $got -eq "$code" ] && grep -qE -- "$pattern" <<<"$out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: exit $got (wanted $code), wanted /$pattern/ in:"
        head -20 <<<"$out"
    fi
}
finish() {
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
}
