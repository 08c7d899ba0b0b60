#!/bin/bash
# Schedules whose order differs from gpipe's and layouts in several groups: the same
# weights as one device, bit for bit, and the memory that was planned.
. "$(dirname "$0")/lib.sh"
need jq

start_gemsd
start_worker node1 cpu:5:1
write_job "$work/job.yaml"

hash=
run_layout() { # SCHEDULE STAGES GROUPS [key=value]...
    local schedule=$1 stages=$2 groups=$3 sets=() job this
    local name="$1 on $2 in $3 groups"
    shift 3
    for this in parallel.schedule="$schedule" parallel.stages="$stages" parallel.groups="$groups" \
        parallel.gradient_blocks=4 "$@"; do
        sets+=(--set "$this")
    done
    job=$(client submit "$work/job.yaml" "${sets[@]}" --wait) ||
        { client status "$job"; client logs "$job" --tail 20; fail "$name did not succeed"; }
    this=$(json .job.weights_hash status "$job")
    say "$name: $this"
    [[ $this =~ ^[0-9a-f]{32}$ ]] || fail "no hash of the weights: $this"
    [ "${hash:=$this}" = "$this" ] || fail "$name gives other weights"
    client --json status "$job" | jq -e --arg schedule "$schedule" \
        --argjson stages "$stages" --argjson groups "$groups" \
        '.job.schedule == $schedule and .job.stages == $stages and .job.groups == $groups and
        (.ranks | length == $stages * $groups and all(.predicted_bytes == .allocated_bytes))' \
        >/dev/null || fail "$name: $(client --json status "$job")"
}
run_layout single 1 1
run_layout 1f1b 2 1
run_layout 1f1b 4 1
run_layout gems-master 2 1 parallel.replications=2
run_layout gems-master 2 1 parallel.replications=4
run_layout gems-mast 2 2
run_layout 1f1b 2 2
run_layout chimera 2 1
run_layout chimera 4 1
run_layout chimera 2 2
run_layout 1f1b-interleaved 2 1 parallel.chunks=2
run_layout 1f1b-interleaved 3 1 parallel.chunks=3
run_layout 1f1b-interleaved 4 1 parallel.balance=[2,1,1,2,1,1,2,1]
run_layout 1f1b-interleaved 2 2
run_layout layer 1 4

say "groups that cannot be"
expect 2 '3 blocks cannot be dealt to the 4 copies' client submit "$work/job.yaml" \
    --set parallel.schedule=gems-mast --set parallel.groups=2 --set parallel.gradient_blocks=3
expect 2 '3 groups of 2 stages do not go on 5 devices' client submit "$work/job.yaml" \
    --set parallel.groups=3 --set parallel.stages=2 --set resources.devices=5

say "auto with groups uses all devices that it can"
job=$(client submit "$work/job.yaml" --set parallel.groups=2 --set parallel.gradient_blocks=4 --wait) ||
    fail "auto in two groups did not succeed"
[ "$(json .job.weights_hash status "$job")" = "$hash" ] || fail "auto in two groups: other weights"
[ "$(json '.ranks | length' status "$job")" -eq 4 ] || fail "not four ranks: $(client status "$job")"
done_ok
