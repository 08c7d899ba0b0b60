#!/bin/bash
# kill -9 of a rank, of the agent, of gemsd, each at a random moment of a running
# job, and of all three at once: the job ends SUCCEEDED with the weights of an
# undisturbed run, and no rank is left. GEMS_FAULT_ROUNDS repeats it.
. "$(dirname "$0")/lib.sh"
need jq
rounds=${GEMS_FAULT_ROUNDS:-1}
seed=${GEMS_FAULT_SEED:-$RANDOM}
RANDOM=$seed
say "seed $seed, $rounds rounds (GEMS_FAULT_SEED, GEMS_FAULT_ROUNDS)"

cat >"$work/gemsd.conf" <<END
[times]
suspect = 2s
lost = 4s
rejoin = 3s
recover = 5s
kill = 500ms
backoff = 100ms
END
start_gemsd --config "$work/gemsd.conf"
start_worker node1 cpu:2:1
write_job "$work/job.yaml"
long=(--set train.epochs=12 --set checkpoint.every_steps=7 --set parallel.schedule=gems-mast
    --set parallel.stages=2 --set limits.max_restarts=20)

reference=$(client submit "$work/job.yaml" "${long[@]}" --wait) || fail "the undisturbed run fails"
wanted=$(json .job.weights_hash status "$reference")
steps=$(json .job.steps_total status "$reference")
say "undisturbed: $wanted after $steps steps"

kill_rank() {
    local all=()
    mapfile -t all < <(ranks)
    [ ${#all[@]} -gt 0 ] && kill -9 "${all[RANDOM % ${#all[@]}]}" 2>/dev/null
    return 0
}
kill_agent() {
    kill -9 "${worker_pids[-1]}"
    wait "${worker_pids[-1]}" 2>/dev/null
}
kill_gemsd() {
    kill -9 "$gemsd_pid"
    wait "$gemsd_pid" 2>/dev/null
}

disturb() { # WHAT
    local job step
    job=$(client submit "$work/job.yaml" "${long[@]}") || fail "submit fails"
    wait_state "$job" RUNNING 60
    step=$((1 + RANDOM % (steps * 3 / 4)))
    wait_until 120 "step $step" is_at_step "$job" "$step"
    sleep "0.0$((RANDOM % 10))"
    say "job $job: kill -9 $1 at step $step"
    case $1 in
    rank) kill_rank ;;
    agent)
        kill_agent
        wait_until 10 "ranks to die with their agent" no_ranks_left
        start_worker node1 cpu:2:1
        ;;
    gemsd)
        kill_gemsd
        sleep "0.$((RANDOM % 10))"
        start_gemsd --config "$work/gemsd.conf"
        ;;
    all)
        kill_rank
        kill_gemsd
        kill_agent
        wait_until 10 "ranks to die with their agent" no_ranks_left
        start_gemsd --config "$work/gemsd.conf"
        start_worker node1 cpu:2:1
        ;;
    esac
    wait_state "$job" SUCCEEDED 180
    [ "$(json .job.weights_hash status "$job")" = "$wanted" ] || fail "kill -9 $1: other weights"
    wait_until 20 "the last rank to end" no_ranks_left
    say "job $job: same weights after attempt $(json .job.attempt status "$job")"
}

for ((round = 0; round < rounds; round++)); do
    for what in rank agent gemsd all; do
        disturb $what
    done
done

say "pause, resume, checkpoint, cancel"
job=$(client submit "$work/job.yaml" "${long[@]}") || fail "submit fails"
wait_until 60 "step 10" is_at_step "$job" 10
client checkpoint "$job" >/dev/null || fail "checkpoint is refused"
client pause "$job" >/dev/null || fail "pause is refused"
wait_state "$job" PAUSED 30
wait_until 20 "ranks to end" no_ranks_left
[ "$(json '.nodes[].devices | map(select(.job != null)) | length' nodes)" -eq 0 ] ||
    fail "a paused job holds devices"
client resume "$job" >/dev/null || fail "resume is refused"
wait_state "$job" SUCCEEDED 120
[ "$(json .job.weights_hash status "$job")" = "$wanted" ] || fail "pause and resume: other weights"
job=$(client submit "$work/job.yaml" "${long[@]}") || fail "submit fails"
wait_until 60 "step 5" is_at_step "$job" 5
client cancel "$job" >/dev/null || fail "cancel is refused"
wait_state "$job" CANCELLED 30
expect 1 CANCELLED client watch "$job"

say "one key, one job"
first=$(client submit "$work/job.yaml" --key night-1) && second=$(client submit "$work/job.yaml" --key night-1)
[ "$first" = "$second" ] || fail "the same key gives jobs $first and $second"
wait_state "$first" SUCCEEDED 60
done_ok
