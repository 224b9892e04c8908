#!/usr/bin/env bash
# Starts a program as ranks of an MPI job:  mpi_run.sh MPIRUN RANKS shared|messages WHAT PROGRAM ...
# WHAT 'exit': one rank ends without a message. The job must fail soon, for that reason alone.
set -uo pipefail
mpirun=$1 ranks=$2 way=$3 what=$4
shift 4

if [[ ! -x $mpirun ]]; then
    echo "SKIP: mpirun is not installed (Debian package openmpi-bin)"
    exit 77
fi
# Containers run tests as root, and have fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=(-n "$ranks")
if "$mpirun" --version 2>&1 | grep -q 'Open MPI'; then
    options+=(--oversubscribe --bind-to none)
fi
if [[ $way == messages ]]; then
    export CLEAVE_SHARED_MEMORY=no
fi
if [[ $what != exit ]]; then
    exec timeout 60 "$mpirun" "${options[@]}" "$@"
fi
# A job that did not start fails, too, and so does one whose ranks saw something else.
said=$(timeout 60 "$mpirun" "${options[@]}" "$@" 2>&1)
rc=$?
printf '%s\n' "$said" "the job ended with status $rc"
[[ $rc -ne 0 && $rc -ne 124 && $said == *"worker 1 leaves"* && $said != *"FAILED: "* ]]
