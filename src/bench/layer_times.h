/* layer_times.h: the layer types that a step's time is shared out to. */
#ifndef CLEAVE_BENCH_LAYER_TIMES_H
#define CLEAVE_BENCH_LAYER_TIMES_H

#include "program/program.h"

/* Layer types are the op kinds, then those of instructions that belong to no layer. */
enum { TYPE_UPDATE = OP_KIND_COUNT, TYPE_LOAD, TYPE_MOVE, TYPE_COUNT };

const char *layer_type_name(int type);
/* The type that a computing instruction counts with. */
int layer_instr_type(const struct program *p, int i);

#endif
