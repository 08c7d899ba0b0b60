# Helpers of the integration tests: real gemsd, agents and ranks in a private
# folder. Sourced; a test ends with `done_ok` or fails by `fail`. Everything
# that was started is ended by its pid, also after a failure.
# shellcheck shell=bash
set -u
top_src=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=$PWD
export GEMS_TEST_MARK=$$.$RANDOM # in the environment of all that is started
work=$(mktemp -d "${TMPDIR:-/tmp}/gems-test.XXXXXX") || exit 1
sock=$work/gemsd.sock
gemsd_pid=
worker_pids=()
started_s=$SECONDS

say() { printf '[%3d s] %s\n' $((SECONDS - started_s)) "$*"; }

fail() {
    say "FAILED: $*"
    local log
    for log in "$work"/*.log; do
        [ -s "$log" ] && printf -- '-- %s\n' "${log##*/}" && tail -n 40 "$log"
    done
    exit 1
}

skip() {
    say "skipped: $*"
    exit 77
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || skip "$tool is not installed"
    done
}

# pids of what this test started, ranks and their helpers included
marked() {
    local file pid
    for file in /proc/[0-9]*/environ; do
        pid=${file#/proc/}
        pid=${pid%/environ}
        [ "$pid" = $$ ] && continue
        grep -qz "^GEMS_TEST_MARK=$GEMS_TEST_MARK\$" "$file" 2>/dev/null &&
            case $(cat "/proc/$pid/comm" 2>/dev/null) in
            gemsd | gems-worker | gems-rank | gems-inspect) echo "$pid" ;;
            esac
    done
    return 0
}

ranks() {
    local pid
    for pid in $(marked); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = gems-rank ] && echo "$pid"
    done
    return 0
}

at_end() { :; } # a test may put its own here

clean_up() {
    local status=$? pid pids
    trap - EXIT INT TERM
    pids=$(marked)
    for pid in $pids; do
        kill "$pid" 2>/dev/null
    done
    for _ in $(seq 50); do
        [ -z "$(marked)" ] && break
        sleep 0.1
    done
    for pid in $(marked); do
        kill -9 "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    at_end
    if [ $status -eq 1 ] && [ -n "${GEMS_TEST_KEEP-}" ]; then
        echo "kept: $work"
    else
        rm -rf "$work"
    fi
    exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# wait_until SECONDS WHAT COMMAND...
wait_until() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    while ! "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "waited too long for $what"
        sleep 0.1
    done
}

client() { "$bin/gems-client" --connect "unix:$sock" "$@"; }

# json FILTER COMMAND...: the client's answer through jq
json() {
    local filter=$1
    shift
    client --json "$@" | jq -r "$filter"
}

start_gemsd() { # further options
    "$bin/gemsd" --state-dir "$work/state" --socket "$sock" "$@" 2>>"$work/gemsd.log" &
    gemsd_pid=$!
    wait_until 20 "gemsd" client nodes
}

# start_worker NAME DEVICES [option]...
start_worker() {
    local name=$1 devices=$2
    shift 2
    "$bin/gems-worker" --state-dir "$work/$name" --connect "unix:$sock" --name "$name" \
        --devices "$devices" "$@" 2>>"$work/$name.log" &
    worker_pids+=($!)
    wait_until 30 "node $name" has_node "$name"
}

has_node() { [ "$(json ".nodes[] | select(.name == \"$1\" and .state == \"online\") | .name" nodes)" = "$1" ]; }

state_of() { json .job.state status "$1"; }
is_in_state() { [ "$(state_of "$1")" = "$2" ]; }
is_over() { case $(state_of "$1") in SUCCEEDED | FAILED | CANCELLED) ;; *) return 1 ;; esac }
is_at_step() { [ "$(json .job.step status "$1")" -ge "$2" ]; }

# wait_state JOB STATE SECONDS
wait_state() {
    local end=$((SECONDS + $3)) state
    while :; do
        state=$(state_of "$1" 2>/dev/null)
        [ "$state" = "$2" ] && return
        case $state in
        SUCCEEDED | FAILED | CANCELLED)
            client status "$1"
            client events "$1"
            client logs "$1" --tail 20
            fail "job $1 is $state, not $2"
            ;;
        esac
        [ $SECONDS -lt $end ] || {
            client status "$1"
            client events "$1"
            fail "job $1 is $state after $3 s, not $2"
        }
        sleep 0.2
    done
}

# expect CODE PATTERN COMMAND...: exit code and an extended regular expression
# in what the command prints
expect() {
    local code=$1 pattern=$2 output status
    shift 2
    output=$("$@" 2>&1)
    status=$?
    [ $status -eq "$code" ] || fail "exit code $status, not $code: $*
$output"
    grep -Eq -- "$pattern" <<<"$output" || fail "no '$pattern' in: $*
$output"
}

# A job that takes seconds: made-up images of 12x12, six to the batch or so.
write_job() { # FILE [line]...
    cat >"$1" <<END
name: small
model: {zoo: resnet, version: 1, depth: 20, classes: 4}
data: {format: synthetic, samples: 100, eval_samples: 22, size: [12, 12], channels: 3}
train: {epochs: 2, batch: 12, lr: 0.05, schedule: cosine, warmup_epochs: 0.2}
parallel: {microbatch: 3, gradient_blocks: 2}
END
}

no_ranks_left() { [ -z "$(ranks)" ]; }

done_ok() {
    wait_until 20 "the last rank to end" no_ranks_left
    say "ok"
    exit 0
}
