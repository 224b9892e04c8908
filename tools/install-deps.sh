#!/usr/bin/env bash
# Installs the Debian packages of the groups named that are not there yet; does nothing, and needs
# no rights and no network, when all are. With the group build it also fetches what reports are drawn
# with (fetch-web.sh).
#
#   tools/install-deps.sh build test bench package
set -euo pipefail

build=(gcc libc6-dev cmake make ninja-build pkg-config libdnnl-dev libjansson-dev zlib1g-dev
       libjpeg62-turbo-dev libpng-dev libxxhash-dev libsqlite3-dev libhwloc-dev openmpi-bin libopenmpi-dev
       dataset-fashion-mnist)
test=(libcmocka-dev clang libomp-dev clang-format clang-tidy python3 procps iproute2
      chromium chromium-driver python3-selenium mandoc zsh bsdutils bsdextrautils)
# Without a real BLAS Debian's PyTorch multiplies matrices with the plain reference one, several
# times slower; of the fast ones the OpenMP flavour shares its threads with PyTorch.
bench=(python3 python3-numpy python3-torch python3-torchvision libopenblas0-openmp)
package=(dpkg-dev file)
test+=(g++ "${package[@]}") # the installed library, used from C++ and as packages

if [[ ${DEPS:-yes} == no ]]; then
    exit 0
fi

wanted=()
web=no
for group in "$@"; do
    case $group in
    build)
        wanted+=("${build[@]}")
        web=yes
        ;;
    test) wanted+=("${test[@]}") ;;
    bench) wanted+=("${bench[@]}") ;;
    package) wanted+=("${package[@]}") ;;
    *)
        echo "install-deps: unknown group '$group' (allowed: build, test, bench, package)" >&2
        exit 2
        ;;
    esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "install-deps: this is not a Debian system. Install the equivalents of" >&2
    echo "    ${wanted[*]}" >&2
    echo "and run make again with DEPS=no" >&2
    exit 1
fi

missing=()
for package in "${wanted[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed* ]] || missing+=("$package")
done
fetch_web() {
    [[ $web == no ]] || "$(dirname "$0")/fetch-web.sh"
}

if [[ ${#missing[@]} -eq 0 ]]; then
    fetch_web
    exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "install-deps: packages are missing, and this is neither root nor is sudo there." >&2
        echo "Ask an administrator to run" >&2
        echo "    apt-get install ${missing[*]}" >&2
        echo "or run make again with DEPS=no to do without them" >&2
        exit 1
    fi
    as_root=(sudo)
fi

apt_get() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"
}

# The package lists are fetched only if they do not know a package, or turn out to be stale.
lists_know() {
    local package
    for package in "$@"; do
        LC_ALL=C apt-cache policy "$package" | grep -q 'Candidate: [^(]' || return 1
    done
}

echo "installing: ${missing[*]}"
if ! lists_know "${missing[@]}"; then
    apt_get update
fi
install=(install --no-install-recommends "${missing[@]}")
if ! apt_get "${install[@]}"; then
    echo "install-deps: trying once more with fresh package lists" >&2
    apt_get update
    apt_get "${install[@]}"
fi
fetch_web
