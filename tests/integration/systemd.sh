#!/bin/bash
# The units are valid, and as locked up as the manual says.
set -u
command -v systemd-analyze >/dev/null || {
    echo "systemd-analyze is not installed"
    exit 77
}
top_src=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# check UNIT MAX_EXPOSURE: as systemd counts it, in tenths
check() {
    local unit=$1 limit=$2
    # What ExecStart= names is not installed yet.
    sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "systemd/$unit" >"$work/$unit"
    if ! systemd-analyze verify --man=no "$work/$unit" >"$work/log" 2>&1 || [ -s "$work/log" ]; then
        echo "$unit: systemd-analyze verify says:"
        cat "$work/log"
        failed=1
    fi
    if ! systemd-analyze security --offline=true --no-pager --threshold="$limit" "$work/$unit" \
        >"$work/log" 2>&1; then
        echo "$unit: more exposed than $limit tenths:"
        tail -n 1 "$work/log"
        failed=1
    fi
    tail -n 1 "$work/log"
    local man
    man=$(sed -n 's/^Documentation=man:\(.*\)(\(.\))$/\1.\2/p' "systemd/$unit")
    [ -f "$top_src/docs/$man" ] || {
        echo "$unit: no manual page docs/$man"
        failed=1
    }
}

check gemsd.service 15
check gems-worker.service 25
grep -q '^MemoryDenyWriteExecute=yes' systemd/gemsd.service || failed=1
grep -q '^MemoryDenyWriteExecute=yes' systemd/gems-worker.service && failed=1
grep -q '@[a-z]*@' systemd/gemsd.service systemd/gems-worker.service systemd/tmpfiles.d/gems.conf && {
    echo "a path was not filled in"
    failed=1
}
exit $failed
