#!/usr/bin/env bash
# Records `make quickstart` in an empty Debian root, from nothing to the report:
#
#   tools/record-quickstart.sh [FOLDER]      as root; FOLDER: docs/recordings unless given
#
# debootstrap makes the root. In it a terminal is recorded in which apt installs git and make, the
# committed state of this repository is cloned, and `make quickstart` does the rest. It writes
# quickstart.typescript and quickstart.timing (scriptreplay shows them), cleaned by clean_recording.py.
# With KEEP=DIR the report and the record of its run go to DIR. MIRROR and SUITE say which Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-docs/recordings}
mirror=${MIRROR:-http://deb.debian.org/debian}
suite=${SUITE:-bookworm}

for tool in debootstrap script unshare git python3; do
    if ! command -v "$tool" >/dev/null; then
        echo "record-quickstart: $tool is missing: apt-get install debootstrap bsdutils git python3" >&2
        exit 1
    fi
done
if [[ $(id -u) -ne 0 ]]; then
    echo "record-quickstart: debootstrap and chroot need root" >&2
    exit 1
fi

# ---- in a mount namespace of its own: what it mounts goes with it ----

if [[ ${1:-} != --inside ]]; then
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    root=$work/root
    echo "record-quickstart: an empty $suite into $root"
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/debootstrap.log" ||
        { tail -n 5 "$work/debootstrap.log" >&2; exit 1; }
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    git clone -q --bare . "$root/srv/cleave.git"
    unshare --mount --uts --pid --fork "$0" --inside "$work"
    mkdir -p "$folder"
    python3 tools/clean_recording.py "$work/raw.typescript" "$work/raw.timing" \
        "$folder/quickstart.typescript" "$folder/quickstart.timing"
    if [[ -n ${KEEP:-} ]]; then
        mkdir -p "$KEEP"
        cp -r "$root/root/cleave/report.html" "$root/root/cleave/runs" "$KEEP"
    fi
    [[ -s $root/root/cleave/report.html ]] || { echo "record-quickstart: no report was made" >&2; exit 1; }
    exit 0
fi

work=$2
root=$work/root
hostname debian
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mkdir -p "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -sf pts/ptmx "$root/dev/ptmx"

# The lines typed in it, each after a prompt.
cat >"$root/root/session.sh" <<'SESSION'
stty cols 100 rows 30
cd /root
export LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive
began=$SECONDS
type_in() {
    printf '\033[1mroot@debian:%s#\033[0m ' "${PWD/#\/root/\~}"
    sleep 1
    printf '%s\n' "$*"
    eval "$*"
}
type_in apt-get -q update
type_in apt-get -q -y install --no-install-recommends git make
type_in git clone -q /srv/cleave.git
type_in cd cleave
type_in time make quickstart
type_in ls -l report.html
printf '\nFrom an empty Debian to the report: %d min %02d s\n' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
SESSION
script -q -e -O "$work/raw.typescript" -T "$work/raw.timing" -c \
    "exec env -i HOME=/root TERM=xterm-256color PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot $root bash /root/session.sh" \
    </dev/null
