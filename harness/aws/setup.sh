#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 to the point where the claims can run: packages, a quiet machine, the disk for
# models, the environment of the claims, baselines. Run as root, from a checkout; can be repeated.
# Usage: setup.sh DATA_DIR ebs|nvme [BASELINE...]
#   DATA_DIR   for models and baselines: `nvme` formats the instance store and mounts it there, `ebs` takes it as it is
#   BASELINE   names that `cflow baseline install` knows; one that cannot be had is a note, not a failure
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ $# -lt 2 ] || { [ "$2" != ebs ] && [ "$2" != nvme ]; }; then
    echo "setup: usage: setup.sh DATA_DIR ebs|nvme [BASELINE...]" >&2
    exit 2
fi
data=$1 store=$2
shift 2
export DEBIAN_FRONTEND=noninteractive

say() { echo "setup: $*"; }

install_packages() {
    local apt=(apt-get -qq -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5)
    "${apt[@]}" update
    # gcc to npm: what `make claims` and llama.cpp need. g++ and libnuma1: vLLM. valgrind: simulated cache misses.
    "${apt[@]}" install -y --no-install-recommends \
        gcc g++ libc6-dev cmake make python3 python3-venv git npm libnuma1 valgrind util-linux e2fsprogs >/dev/null
}

# What a server does on its own would void rounds of timed checks.
quiet_the_machine() {
    [ -d /run/systemd/system ] || return 0
    local unit
    for unit in apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service \
        man-db.timer fstrim.timer unattended-upgrades.service; do
        systemctl stop "$unit" 2>/dev/null || true
    done
}

# The first instance store device that nothing uses; nothing when there is none.
instance_store() {
    local name model
    while read -r name model; do
        if [ "$model" = "Amazon EC2 NVMe Instance Storage" ] &&
            [ "$(lsblk --noheadings --output MOUNTPOINTS "/dev/$name" | tr -d '[:space:]')" = "" ]; then
            echo "/dev/$name"
            return 0
        fi
    done < <(lsblk --nodeps --noheadings --output NAME,MODEL)
}

mount_data() {
    mkdir -p "$data"
    if [ "$store" = ebs ] || mountpoint --quiet "$data"; then return 0; fi
    local device
    device=$(instance_store)
    if [ -z "$device" ]; then
        say "this machine has no free NVMe instance store; its disks are:" >&2
        lsblk --nodeps --output NAME,MODEL,SIZE >&2
        return 3
    fi
    # All of the file system is written now: ext4 would go on with it in the background, beside the measurements.
    mkfs.ext4 -q -F -T largefile4 -E lazy_itable_init=0,lazy_journal_init=0 "$device"
    mount -o noatime "$device" "$data"
    say "$device is $data"
}

make_environment() {
    if [ ! -x .venv/bin/tox ]; then
        python3 -m venv .venv
        .venv/bin/pip install --quiet 'tox>=4.67'
    fi
    .venv/bin/tox run --notest -e claims
}

install_baselines() {
    local name
    for name in "$@"; do
        say "baseline $name"
        if ! .tox/claims/bin/cflow baseline install "$name"; then
            say "baseline $name could not be installed: its rows will be NOT MEASURABLE HERE"
        fi
    done
}

quiet_the_machine
say "packages"
install_packages
say "disk for models"
mount_data
export CFLOW_BASELINES=${CFLOW_BASELINES:-$data/baselines}
say "environment"
make_environment
install_baselines "$@"
say "ready; free in $data: $(df --output=avail -h "$data" | tail -n 1 | tr -d ' ')"
