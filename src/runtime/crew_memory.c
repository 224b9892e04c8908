/* Whether the workers of a host fit into its memory: their programs say what they need before
 * anything is allocated. Beyond the memory there is, the system does not refuse: it kills. */
#include "base/memory.h"
#include "base/text.h"
#include "runtime/crew_parts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- the need ---- */

/* Each process sends its own to all others. */
struct crew_need {
    uint64_t host;
    int64_t n_workers;
    int64_t bytes[BUFFER_CLASS_COUNT];
};

/* The same for processes that share their memory. */
static uint64_t identify_host(void)
{
    char text[512] = "";
    (void)gethostname(text, 256);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(text + 256, 256, f))
        text[256] = '\0';
    if (f)
        (void)fclose(f);
    return XXH64(text, sizeof text, 0);
}

/* As its executor will allocate: the programs of a worker share one set of slabs. */
static void add_worker(struct crew_need *to, const struct crew_worker *w)
{
    to->n_workers++;
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++) {
        int64_t most = 0;
        for (int p = 0; p < CREW_PROGRAM_COUNT; p++)
            if (w->programs[p] && w->programs[p]->slab_bytes[k] > most)
                most = w->programs[p]->slab_bytes[k];
        to->bytes[k] += most;
    }
}

/* Of all processes on this host. */
static enum status sum_host(crew *c, struct crew_need *mine)
{
    comm *end = crew_process(c);
    struct crew_need *all, own = *mine;
    if (!end)
        return STATUS_OK;
    TRY(arena_alloc_array(c->memory, (size_t)end->size, sizeof *all, &all));
    TRY(end->table->exchange(end, &own, sizeof own, all));
    for (int i = 0; i < end->size; i++) {
        if (i == end->rank || all[i].host != own.host)
            continue;
        mine->n_workers += all[i].n_workers;
        for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
            mine->bytes[k] += all[i].bytes[k];
    }
    return STATUS_OK;
}

static enum status refuse(const struct crew_need *need, int64_t sum, int64_t limit)
{
    char classes[512] = "", bytes[32], there[32];
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++) {
        size_t used = strlen(classes);
        if (need->bytes[k])
            (void)snprintf(classes + used, sizeof classes - used, "%s%s %s", used ? ", " : "",
                           buffer_class_name((enum buffer_class)k),
                           text_bytes(bytes, sizeof bytes, (double)need->bytes[k]));
    }
    return status_fail(STATUS_NO_FIT,
                       "the plan does not fit into this host: %lld worker%s of it need%s %s (%s), "
                       "there are %s; 'cleave predict' says what would fit",
                       (long long)need->n_workers, need->n_workers == 1 ? "" : "s",
                       need->n_workers == 1 ? "s" : "",
                       text_bytes(bytes, sizeof bytes, (double)sum), classes,
                       text_bytes(there, sizeof there, (double)limit));
}

enum status crew_check_memory(crew *c)
{
    struct crew_need need = {.host = identify_host()};
    int64_t sum = 0, limit;
    for (int i = 0; i < c->info.n_local; i++)
        add_worker(&need, &c->workers[i]);
    TRY(sum_host(c, &need));
    TRY(memory_find_limit(&limit));
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        sum += need.bytes[k];
    return sum > limit ? refuse(&need, sum, limit) : STATUS_OK;
}
