/* Whether the environment tells of an MPI launcher; works without MPI. */
#include "comm/comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char *name, int *out)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return false;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < 0 || value > INT_MAX)
        return false;
    *out = (int)value;
    return true;
}

bool comm_mpi_launched(int *rank, int *size)
{
    /* Open MPI's mpirun, MPICH's and Intel's, and srun where it was told to start MPI ranks: a
     * plain `srun cleave` without --mpi sets SLURM_PROCID, too, but starts no MPI job. */
    static const struct {
        const char *rank, *size, *needs, *not ;
    } launchers[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, NULL},
        {"PMI_RANK", "PMI_SIZE", NULL, NULL},
        {"PMIX_RANK", "SLURM_NTASKS", NULL, NULL},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_MPI_TYPE", "none"},
    };
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *needed = launchers[i].needs ? getenv(launchers[i].needs) : "yes";
        if (!needed || !*needed || (launchers[i].not &&strcmp(needed, launchers[i].not ) == 0))
            continue;
        int r, n;
        if (read_number(launchers[i].rank, &r) && read_number(launchers[i].size, &n) && r < n) {
            *rank = r;
            *size = n;
            return true;
        }
    }
    return false;
}
