/* table.h: the transport of threads, for the registry. */
#ifndef CLEAVE_COMM_THREADS_TABLE_H
#define CLEAVE_COMM_THREADS_TABLE_H

#include "comm/comm.h"

extern const struct comm_table threads_table;

#endif
