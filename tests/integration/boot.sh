#!/bin/bash
# The installed units under a real systemd, booted as PID 1 in namespaces of its
# own over a throw-away copy of the root: set up as README.md says, a job of an
# ordinary user trains through kill -9 of both services and a gemsd that hangs.
. "$(dirname "$0")/lib.sh"
need jq unshare nsenter findmnt runuser systemctl useradd
[ "$(id -u)" = 0 ] || skip "needs root to boot systemd"
[ "${SANITIZED-no}" = no ] || skip "hardened units leave no room for a sanitizer's memory"
systemd=/lib/systemd/systemd
[ -x $systemd ] || skip "systemd is not installed"
groups=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)
[ -n "$groups" ] || skip "no second version of control groups"
for unit in gemsd gems-worker; do
    prefix=$(sed -n "s|^ExecStart=\(.*\)/sbin/$unit .*|\1|p" "systemd/$unit.service")
    case $prefix in
    /usr | /usr/local) ;;
    *) skip "configured for ${prefix:-another place}, where systemd looks for no units" ;;
    esac
done
conf=$(sed -n 's|^ExecStart=.* --config \(.*\)/gemsd.conf$|\1|p' systemd/gemsd.service)

group=$groups/gems-boot-$$
boot_pid=
at_end() {
    [ -n "$boot_pid" ] && kill -9 "$boot_pid" 2>/dev/null
    for _ in $(seq 50); do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
        [ -d "$group" ] || break
        sleep 0.1
    done
}

env -u MAKEFLAGS -u MAKELEVEL -u DESTDIR make -s install DESTDIR="$work/installed" \
    >"$work/install.log" 2>&1 || fail "make install"

# What runs in the new namespaces until it becomes PID 1's program.
cat >"$work/boot" <<'END'
set -e
root=$1/root installed=$2
mount --make-rprivate /
mount -t tmpfs tmpfs "$1/root"
mkdir "$root/up" "$root/work" "$root/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/up,workdir=$root/work" "$root/all"
root=$root/all
cp -a "$installed/." "$root/"
for dir in tmp run var/lib var/log; do
    mount -t tmpfs -o mode=755 tmpfs "$root/$dir"
done
chmod 1777 "$root/tmp"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mountpoint -q "$root/sys/fs/cgroup" || mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts" "$root/dev/mqueue" "$root/dev/hugepages"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/old"
cd "$root"
pivot_root . old
cd /
umount -l /old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
    --unit=basic.target --log-target=null --show-status=0
END

mkdir "$work/root" && mkdir "$group" 2>/dev/null || skip "no control group of its own"
(
    echo "$BASHPID" >"$group/cgroup.procs" || exit 1
    exec unshare --mount --pid --fork --cgroup --uts --ipc --net --kill-child \
        bash "$work/boot" "$work" "$work/installed" </dev/null
) >"$work/boot.out" 2>&1 &
unshare_pid=$!
disown # ends with the system in it, in at_end

inside() { nsenter -t "$boot_pid" -m -p -C -u -i -n -r -w "$@"; }
has_booted() {
    kill -0 "$unshare_pid" 2>/dev/null || skip "systemd does not boot here: $(cat "$work/boot.out")"
    boot_pid=$(pgrep -P "$unshare_pid")
    [ -n "$boot_pid" ] && inside systemctl is-active basic.target
}
wait_until 60 "systemd" has_booted
say "systemd has booted"
inside ip link set lo up

inside systemd-sysusers && inside systemd-tmpfiles --create 2>/dev/null
inside useradd -m alice || fail "no user"
[ "$(inside stat -c '%a %G' "$conf")" = "750 gems" ] || fail "$conf: $(inside stat -c '%a %G' "$conf")"
inside tee "$conf/gemsd.conf" <"$top_src/systemd/gemsd.conf" >/dev/null
sed 's/^devices = .*/devices = cpu:2:1/' "$top_src/systemd/gems-worker.conf" |
    inside tee "$conf/gems-worker.conf" >/dev/null
# The watchdog of the unit, but for its patience of half a minute.
inside mkdir -p /run/systemd/system/gemsd.service.d
printf '[Service]\nWatchdogSec=5\n' | inside tee /run/systemd/system/gemsd.service.d/quick.conf >/dev/null
inside systemctl daemon-reload
inside systemctl start gemsd gems-worker || fail "the units do not start"

as_alice() { inside runuser -u alice -- "$prefix/bin/gems-client" "$@"; }
alice_json() {
    local filter=$1
    shift
    as_alice --json "$@" | jq -r "$filter"
}
has_devices() { [ "$(alice_json '.nodes[0].state' nodes)" = online ]; }
wait_until 30 "the node" has_devices

main_pid() { inside systemctl show -p MainPID --value "$1"; }
restarts() { inside systemctl show -p NRestarts --value gemsd; }
is_past() { [ "$(alice_json .job.step status "$1")" -gt "$2" ]; }

write_job "$work/job.yaml"
inside tee /tmp/job.yaml <"$work/job.yaml" >/dev/null
long=(--set train.epochs=80 --set checkpoint.every_steps=7 --set parallel.stages=2
    --set parallel.schedule=gems-mast --set limits.max_restarts=20)
submit() { as_alice submit /tmp/job.yaml "${long[@]}" | tail -n 1; }
undisturbed=$(submit)
as_alice watch "$undisturbed" >"$work/watch.out" 2>&1 || fail "the job: $(cat "$work/watch.out")"
wanted=$(alice_json .job.weights_hash status "$undisturbed")
say "alice's job has trained: $wanted"

job=$(submit)
wait_until 60 "step 5" is_past "$job" 5
# Every rank has a control group of its own.
n=$(inside find /sys/fs/cgroup/system.slice/gems-worker.service -mindepth 1 -type d -name '*-*' | wc -l)
[ "$n" -eq 2 ] || fail "$n control groups of ranks"
for unit in gemsd gems-worker; do
    say "kill -9 of $unit"
    inside kill -9 "$(main_pid $unit)"
    wait_until 30 "gemsd to answer" as_alice status "$job"
    step=$(alice_json .job.step status "$job")
    wait_until 60 "a step after $step" is_past "$job" "$step"
done
as_alice watch "$job" >"$work/watch.out" 2>&1 || fail "the job: $(cat "$work/watch.out")"
[ "$(alice_json .job.weights_hash status "$job")" = "$wanted" ] || fail "other weights"

say "a gemsd that hangs is replaced by the watchdog"
before=$(restarts)
inside kill -STOP "$(main_pid gemsd)"
is_replaced() { [ "$(restarts)" -gt "$before" ]; }
wait_until 60 "the watchdog" is_replaced
wait_until 30 "gemsd to answer" as_alice status "$job"

say "stopping leaves nothing, a wrong configuration stays down"
inside systemctl stop gems-worker gemsd || fail "stop"
[ -z "$(inside pgrep '^gems')" ] || fail "left: $(inside pgrep -a '^gems')"
echo "nonsense = 1" | inside tee -a "$conf/gemsd.conf" >/dev/null
inside systemctl start gemsd 2>/dev/null && fail "starts with a wrong configuration"
sleep 2
[ "$(inside systemctl show -p ActiveState --value gemsd)" = failed ] || fail "tries again"
done_ok
