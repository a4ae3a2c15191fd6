# What the machine does, as root, from its first boot to its end. It is sent as user data: harness/aws/userdata.py puts
# the time limit and the variables below before it. The machine ends at the limit, whatever happens here; when this
# script ends, however it does; and when it boots a second time. Results and log go to the bucket in between.
# shellcheck shell=bash disable=SC2154,SC2317  # variables of the header; functions that traps call
set -uo pipefail # not -e: what fails must reach `finish`

export DEBIAN_FRONTEND=noninteractive
export HOME=${HOME:-/root} # cloud-init sets none
out=$data/runs/$run
place=s3://$bucket/$run
exec 3>&1 >>"$log" 2>&1 # 3: the console

say() {
    local line
    line="boot: $(date -u +%H:%M:%S) $*"
    echo "$line"
    echo "$line" >&3
}

# Results and log as they are now. results.json is valid at every moment; models are not results.
upload=$scripts/cflow-upload
cat >"$upload" <<UPLOAD
#!/bin/sh
mkdir -p "$out"
cp "$log" "$out/machine.log"
exec aws s3 sync --only-show-errors --region "$region" --exclude ".*" "$out" "$place/out"
UPLOAD
chmod 755 "$upload"

# A second boot is a crash: nothing can go on, so that what lies there is brought away and the machine ends.
mkdir -p "$per_boot"
cat >"$per_boot/cflow-end" <<END
#!/bin/sh
timeout 600 "$upload"
shutdown -P now
END
chmod 755 "$per_boot/cflow-end"

# state NAME [EXIT_CODE]: what the client reads.
state() {
    say "state: $1 ${2-}"
    mkdir -p "$out"
    printf '{"run": "%s", "state": "%s", "exit_code": %s, "utc": "%s"}\n' \
        "$run" "$1" "${2-null}" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$out/status.json"
    timeout 600 "$upload"
}

result=2
last=booting
finish() {
    # A child that is ended before it has become another program still has the traps of this shell.
    [ "$BASHPID" = "$$" ] || return
    trap - EXIT
    # Its group, and itself should it have none yet.
    [ -z "${uploader-}" ] || kill -- "-$uploader" "$uploader" 2>/dev/null
    # The console is what can be had of a machine that cannot send its log.
    state "$last" "$result" || { sleep 30 && state "$last" "$result"; } || tail -n 60 "$log" >&3
    shutdown -P now
}
trap finish EXIT
trap 'last=stopped; exit 143' TERM INT HUP

fetch_source() {
    # Its daily update may hold the lock of the lists, for which apt-get does not wait.
    systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service 2>/dev/null
    apt-get -qq -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 update &&
        apt-get -qq -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 install -y --no-install-recommends \
            ca-certificates git awscli >/dev/null &&
        aws s3 cp --only-show-errors --region "$region" "$place/source.bundle" "$source.bundle" &&
        rm -rf "$source" && git -c advice.detachedHead=false clone --quiet "$source.bundle" "$source"
}

say "run $run, ends at the latest in $limit_minutes minutes"
last=setup_failed
if ! fetch_source && ! { sleep 30 && fetch_source; } && ! { sleep 60 && fetch_source; }; then
    say "the source did not come: no network, or no access to $place"
    exit 2
fi
state setup
# shellcheck disable=SC2086  # baselines is a list of words
if ! timeout --kill-after=60 "$((setup_minutes * 60))" "$source/harness/aws/setup.sh" "$data" "$store" $baselines; then
    say "setup failed or took longer than $setup_minutes minutes"
    exit 2
fi
state running

# An upload takes a second of one core; ten minutes apart it can void few rounds. A session of its own: its sleep
# ends with it.
# shellcheck disable=SC2016  # that shell expands it
setsid bash -c 'while sleep 600; do nice -n 19 timeout 300 "$0"; done' "$upload" 3>&- &
uploader=$!

# What is left of the limit, less the time for the last upload. tox and not make: make has one exit code for failures.
spent=$((SECONDS + 60))
left=$((limit_minutes * 60 - spent - 900))
cd "$source" || exit 2
export CFLOW_BASELINES=$data/baselines
last=run_failed
timeout --signal=INT --kill-after=120 "$left" .venv/bin/tox run --skip-pkg-install -e claims -- \
    --out "$out" "${arguments[@]}"
result=$?
case $result in
0 | 1) if [ -e "$out/results.json" ]; then last=measured; else result=2; fi ;;
124 | 137) last=time_limit result=2 ;;
esac
# The page of a run that was cut short.
if [ "$last" != measured ] && [ -e "$out/results.json" ]; then .tox/claims/bin/cflow report "$out"; fi
exit "$result"
