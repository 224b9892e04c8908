/* arena.h: memory for things built once and thrown away together (graphs, programs).
 *
 * Blocks come zeroed and aligned to 16 bytes, and live until arena_destroy. An arena belongs to
 * one thread at a time.
 */
#ifndef CLEAVE_BASE_ARENA_H
#define CLEAVE_BASE_ARENA_H

#include "base/status.h"

#include <stdint.h>

typedef struct arena arena;

enum status arena_create(arena **out) MUST_USE;
void arena_destroy(arena *a); /* NULL is fine */
/* Gives back everything handed out so far; the arena keeps the memory for later requests. */
void arena_reset(arena *a);

/* n_bytes zeroed bytes in *out (never NULL on success, even for 0 bytes). */
enum status arena_alloc(arena *a, size_t n_bytes, void *out) MUST_USE;

/* `count` zeroed elements of element_bytes each; refuses an overflowing product. */
enum status arena_alloc_array(arena *a, size_t count, size_t element_bytes, void *out) MUST_USE;

/* A copy of `text`, or of printf-style text. */
enum status arena_copy_text(arena *a, const char *text, const char **out) MUST_USE;
enum status arena_print(arena *a, const char **out, const char *format, ...)
    PRINTF_LIKE(3, 4) MUST_USE;

/* All bytes handed out so far (for memory accounting). */
size_t arena_used_bytes(const arena *a);

/* `out` above is a pointer to any object pointer:  struct node *n; TRY(arena_alloc(a, sizeof *n,
 * &n));
 */

#endif
