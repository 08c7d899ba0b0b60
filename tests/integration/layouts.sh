#!/bin/bash
# One job in every layout gives the same weights, bit for bit; what status, plan,
# checkpoints and the others say has the shape of the contract.
. "$(dirname "$0")/lib.sh"
need jq

start_gemsd
start_worker node1 cpu:5:1
write_job "$work/job.yaml"

hash=
run_layout() { # SCHEDULE STAGES
    local job this
    job=$(client submit "$work/job.yaml" --set parallel.schedule="$1" --set parallel.stages="$2" --wait) ||
        { client status "$job"; client logs "$job" --tail 20; fail "$1 on $2 did not succeed"; }
    this=$(json .job.weights_hash status "$job")
    say "$1 on $2: $this"
    [[ $this =~ ^[0-9a-f]{32}$ ]] || fail "no hash of the weights: $this"
    [ "${hash:=$this}" = "$this" ] || fail "$1 on $2 gives other weights"
    json '.ranks[] | select(.predicted_bytes != .allocated_bytes)' status "$job" >"$work/unequal"
    [ -s "$work/unequal" ] && fail "planned is not allocated: $(cat "$work/unequal")"
    [ "$(json '.ranks | length' status "$job")" -eq "$2" ] || fail "not a rank a stage"
    json '.ranks[] | select(.step_seconds | .compute <= 0 or .wait <= 0)' status "$job" >"$work/idle"
    [ "$2" -gt 1 ] && [ -s "$work/idle" ] && fail "where does the time go: $(cat "$work/idle")"
    [ -n "${SANITIZED-}" ] && return # its shadow memory counts
    json '.ranks[] | select(.peak_rss_bytes > .allocated_bytes + 80 * 1048576)' status "$job" >"$work/fat"
    [ -s "$work/fat" ] && fail "more than 80 MiB beside what is planned: $(cat "$work/fat")"
    return 0
}
run_layout single 1
run_layout layer 2
run_layout layer 3
run_layout layer 5
run_layout gpipe 2
run_layout gpipe 3
run_layout gems-mast 2
run_layout gems-mast 3
run_layout gems-mast 4

say "another seed gives other weights"
job=$(client submit "$work/job.yaml" --set train.seed=2 --set parallel.schedule=single --wait) ||
    fail "seed 2 did not succeed"
[ "$(json .job.weights_hash status "$job")" != "$hash" ] || fail "the seed changes nothing"

say "shapes of JSON"
check_shape() { # JQ-CONDITION COMMAND...
    local condition=$1 answer
    shift
    answer=$(client --json "$@") || fail "$* failed"
    jq -e "$condition" >/dev/null <<<"$answer" || fail "$*: not ($condition): $answer"
}
check_shape '.job | (.id | type == "number") and .state == "SUCCEEDED" and .failure_class == null and
    (.submitted | test("^20[0-9-]*T[0-9:.]*Z$")) and .finished >= .started and .step == .steps_total and
    .steps_total == 18 and .epoch == 1 and .samples == 200 and (.loss | type == "number") and
    .eval_accuracy >= 0 and .eval_accuracy <= 1 and .samples_per_second > 0 and .schedule == "single" and
    .stages == 1 and .groups == 1 and .microbatch == 3 and .attempt >= 1' status "$job"
check_shape '.ranks[0] | .rank == 0 and .node == "node1" and (.device | startswith("cpu:")) and
    .chain_stages == [[0, 0]] and .predicted_bytes > 0 and .peak_rss_bytes > .allocated_bytes and
    .busy_fraction >= 0 and .busy_fraction <= 1 and (.step_seconds | .compute > 0 and .wait >= 0 and
    .reduce >= 0 and .copy > 0 and ([.[]] | length == 4 and add < 10))' status "$job"
check_shape '.checkpoints | length >= 1 and all(.bytes > 0 and (.when | type == "string") and
    (.weights_hash | length == 32))' checkpoints "$job"
check_shape '.checkpoints | all(.verified)' checkpoints "$job" --verify
check_shape '.jobs | length == 10 and all(.state == "SUCCEEDED")' list
check_shape '.jobs == []' list --state RUNNING
check_shape '.nodes[0] | .name == "node1" and (.devices | length == 5) and
    (.devices | all(.kind == "cpu" and .memory_bytes > 0 and .job == null))' nodes
check_shape '.events | length > 4 and any(.state == "RUNNING") and all(.when | type == "string")' \
    events "$job"
check_shape '.fits and .schedule == "gems-mast" and .chains == 2 and (.balance | add == 11) and
    .parameters > 0 and .step_seconds > 0 and (.devices | length == 2 and
    all(.total_bytes == .weights_bytes + .gradients_bytes + .optimizer_bytes + .activations_bytes +
        .buffers_bytes + .workspace_bytes and .limit_bytes >= .total_bytes))' \
    plan "$work/job.yaml" --set parallel.schedule=gems-mast --set parallel.stages=2

say "the plan without gemsd has the same bytes"
online=$(json '.devices | map(.total_bytes)' plan "$work/job.yaml" --set parallel.schedule=layer \
    --set parallel.stages=5)
offline=$("$bin/gems-client" --json plan "$work/job.yaml" --set parallel.schedule=layer \
    --set parallel.stages=5 --devices 5x1GiB | jq -r '.devices | map(.total_bytes)')
[ "$online" = "$offline" ] || fail "online $online, offline $offline"
expect 7 'does not fit' client plan "$work/job.yaml" --devices 2x1MiB
"$bin/gems-client" --json plan "$work/job.yaml" --devices 2x1MiB 2>/dev/null |
    jq -e '.fits == false and (.advice | length > 0)' >/dev/null || fail "no plan object with fits false"
done_ok
