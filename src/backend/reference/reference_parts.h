/* reference_parts.h: the reference backend's own types, and its functions by file. */
#ifndef CLEAVE_BACKEND_REFERENCE_REFERENCE_PARTS_H
#define CLEAVE_BACKEND_REFERENCE_REFERENCE_PARTS_H

#include "backend/backend.h"
#include "backend/reference/kernels.h"
#include "backend/widen.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LAYOUT_BUCKETS = 2048 };

struct layout {
    enum element type;
    struct shape shape;
    int64_t n_bytes;
    struct layout *next; /* in its bucket */
    char text[SHAPE_TEXT_BYTES + 8];
};

struct device {
    bool has_all_types;
    /* One per type and shape asked for so far. They are looked up without the lock, which is for
     * adding. */
    struct layout *_Atomic layouts[LAYOUT_BUCKETS];
    pthread_mutex_t lock;
};

struct stream {
    struct device *device;
};

struct event {
    struct device *device;
};

/* ---- group.c ---- */

enum status reference_group_create(device *d, const struct group_spec *spec,
                                   struct group_layouts *layouts, group **out) MUST_USE;
void reference_group_destroy(group *g);
void reference_group_get_needs(const group *g, struct group_needs *needs);
enum status reference_group_run(group *g, enum pass pass, stream *s, const struct group_args *args,
                                const struct step_state *step) MUST_USE;

/* A pass on tensors as the kernels have them. */
enum status reference_group_run_wide(group *g, enum pass pass, stream *s,
                                     const struct group_args *args,
                                     const struct step_state *step) MUST_USE;

/* ---- device.c ---- */

extern const struct widen_calls reference_widen_calls;

enum status reference_layout_plain(device *d, enum element type, const struct shape *shape,
                                   const layout **out) MUST_USE;
bool reference_computes_in(enum precision precision);
/* The kernels that compute in this type. */
enum status reference_find_kernels(enum element type, const struct kernel_table **out) MUST_USE;

#endif
