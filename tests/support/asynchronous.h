/* asynchronous.h: a backend whose streams are threads, over another backend: a call returns before
 * its work is done, as on a GPU, so that a missing synchronisation shows.
 *
 *     const struct backend *backend = asynchronous_backend("reference");
 *     ...                               // devices, layouts and groups are the inner backend's
 *     asynchronous_delay(0.3, 1);       // some tasks are late, by random draws of seed 1
 *
 * A stream does its tasks in order. A failure is returned by the next stream_synchronize. Streams
 * order each other by events alone. Arguments are copied, but for what backend.h says must stay:
 * group_args, and what an upload reads. A download waits for the stream. */
#ifndef CLEAVE_TESTS_ASYNCHRONOUS_H
#define CLEAVE_TESTS_ASYNCHRONOUS_H

#include "backend/backend.h"

/* One inner backend at a time. */
const struct backend *asynchronous_backend(const char *inner);

/* Tasks are late with this probability, by up to a millisecond; 0 is the usual one. Call it while
 * no stream is open. */
void asynchronous_delay(double probability, uint64_t seed);

#endif
