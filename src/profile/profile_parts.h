/* profile_parts.h: the inside of a profile; shared by profile.c and profile_text.c. */
#ifndef CLEAVE_PROFILE_PROFILE_PARTS_H
#define CLEAVE_PROFILE_PROFILE_PARTS_H

#include "profile/profile_cache.h"

struct profile {
    store *store;
    cache *cache;
    struct status_error broken; /* why entries could not be read */
};

/* The text format, of any stream; `name` is for messages. Rows and texts are added to *content. */
enum status profile_parse_text(FILE *in, const char *name, struct store_content *content) MUST_USE;
enum status profile_print_text(const struct store_content *content, FILE *out) MUST_USE;

#endif
