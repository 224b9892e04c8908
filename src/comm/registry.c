/* Which transports were built: threads always, MPI where the build found it. */
#include "comm/comm.h"
#include "comm/threads/table.h"
#ifdef CLEAVE_HAVE_MPI
#include "comm/mpi/create.h"
#endif

#include <string.h>

const struct comm_table *comm_find_table(const char *name)
{
    if (strcmp(name, threads_table.name) == 0)
        return &threads_table;
#ifdef CLEAVE_HAVE_MPI
    if (strcmp(name, mpi_table.name) == 0)
        return &mpi_table;
#endif
    return NULL;
}

enum status comm_mpi_create(double timeout_s, comm **out)
{
#ifdef CLEAVE_HAVE_MPI
    return mpi_create(timeout_s, out);
#else
    (void)timeout_s;
    *out = NULL;
    return status_fail(STATUS_USAGE,
                       "this build has no MPI: install an MPI library (Debian package "
                       "libopenmpi-dev) and build again, or leave out mpirun and use --workers");
#endif
}
