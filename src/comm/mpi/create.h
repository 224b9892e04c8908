/* create.h: the transport over MPI; comm_mpi_create says the rest. */
#ifndef CLEAVE_COMM_MPI_CREATE_H
#define CLEAVE_COMM_MPI_CREATE_H

#include "comm/comm.h"

extern const struct comm_table mpi_table;

enum status mpi_create(double timeout_s, comm **out) MUST_USE;

#endif
