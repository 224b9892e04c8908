/* Built where hwloc is missing: the system places the threads. */
#include "runtime/pin.h"

#include <unistd.h>

int pin_count_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* All processes count as neighbours: cores are rather divided too often than given out twice. */
uint64_t pin_identify_cores(void)
{
    return 0;
}

bool pin_thread(int place, int n_places, int threads)
{
    (void)place;
    (void)n_places;
    (void)threads;
    return false;
}

/* Nothing was bound, so there is nothing to go back to. */
void pin_remember(struct pin_mask *mask)
{
    mask->is_known = false;
}

void pin_restore(const struct pin_mask *mask)
{
    (void)mask;
}
