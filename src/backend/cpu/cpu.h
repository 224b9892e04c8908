/* cpu.h: the fast backend for CPUs, over oneDNN and own vectorised loops. */
#ifndef CLEAVE_BACKEND_CPU_CPU_H
#define CLEAVE_BACKEND_CPU_CPU_H

#include "backend/backend.h"

extern const struct backend backend_cpu;

#endif
