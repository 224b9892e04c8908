# For the tests that run cleave under mpirun; source it from a folder made by in_temp_folder.sh:
#   source "$CLEAVE_SOURCE/tests/mpi_job.sh"

mpirun=$(command -v mpirun || true)
if [[ -z $mpirun ]]; then
    echo "skipped: mpirun is not installed (Debian package openmpi-bin)"
    exit 77
fi

# Containers run tests as root, have fewer cores than ranks, and may forbid reading another process's
# memory. No rank is to spin while another has the core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
export OMP_WAIT_POLICY=passive
mpi_options=()
if "$mpirun" --version 2>&1 | grep -q 'Open MPI'; then
    mpi_options+=(--oversubscribe --bind-to none)
fi

fail() {
    echo "FAILED: $*" >&2
    for file in stdout stderr; do
        [[ -f $file ]] && sed "s/^/  $file: /" $file | cut -c 1-300 | head -n 30 >&2
    done
    exit 1
}

# on_threads RANKS ARGUMENTS..., on_ranks RANKS ARGUMENTS...: cleave train with so many workers, in
# one process or in as many; it must succeed. Its output is in the files stdout and stderr.
on_threads() {
    local n=$1 rc=0
    shift
    timeout 100 "$CLEAVE" train "$@" --workers "$n" >stdout 2>stderr </dev/null || rc=$?
    [[ $rc -eq 0 ]] || fail "$n threads, train $*: exit $rc"
}

on_ranks() {
    local n=$1 rc=0
    shift
    timeout 100 "$mpirun" "${mpi_options[@]}" -n "$n" "$CLEAVE" train "$@" >stdout 2>stderr \
        </dev/null || rc=$?
    [[ $rc -eq 0 ]] || fail "$n ranks, train $*: exit $rc"
}

# same FOLDER FOLDER: the checkpoints of both are equal, bit for bit.
same() {
    [[ -n $(ls "$1"/*.safetensors) ]] || fail "$1 holds no checkpoint"
    diff -rq "$1" "$2" || fail "$1 and $2 differ"
}
