#include "fuzz.h"

#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    for (int n_dimensions = 1; n_dimensions <= 3; n_dimensions += 2) {
        struct idx idx;
        if (idx_parse(bytes, n_bytes, "input", n_dimensions, &idx) == STATUS_OK) {
            int64_t n = idx.dimensions[0];
            if (n_dimensions == 3)
                n *= idx.dimensions[1] * idx.dimensions[2];
            volatile uint8_t last = idx.data[n - 1];
            (void)last;
            idx_free(&idx);
        } else {
            assert(status_message()[0] != '\0');
            status_clear();
        }
    }
    return 0;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    seeds[0] = files_idx(3, 4, 5);
    seeds[1] = files_idx(9, 0, 0);
    seeds[2] = files_gzip(seeds[0]);
    seeds[3] = files_gzip(seeds[1]);
    struct file_bytes big = files_idx(10, 28, 28);
    seeds[4] = files_gzip(big);
    free(big.bytes);
    return 5;
}
