/* read.h: what machine files and machines/devices.json have in common. For src/machine alone. */
#ifndef CLEAVE_MACHINE_READ_H
#define CLEAVE_MACHINE_READ_H

#include "machine/machine.h"
#include "machine/reader.h"

/* The members of a kind over what *k holds; texts live as long as the JSON. Other members are not
 * looked at. */
enum status machine_read_kind(const struct machine_place *at, const json_t *object,
                              struct machine_kind *k) MUST_USE;

/* `root` has the version number under `key`; `what` is for errors. */
enum status machine_read_version(const struct machine_place *top, const json_t *root,
                                 const char *key, const char *what) MUST_USE;

#endif
