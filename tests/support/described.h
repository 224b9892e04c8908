/* described.h: programs for a device that is only described, of networks on small images. */
#ifndef CLEAVE_TESTS_DESCRIBED_H
#define CLEAVE_TESTS_DESCRIBED_H

#include "program/program.h"
#include "session.h"

struct graph *described_graph(const char *model, int batch);

struct plan *described_plan(const char *strategy, const struct graph *g, int n_workers, int micros);

struct program_options described_options(const struct plan *plan);

int described_open(void **state);

int described_close(void **state);

#endif
