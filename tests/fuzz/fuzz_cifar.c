#include "fuzz.h"

#include "data/cifar.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    int64_t n;
    if (cifar_check(bytes, n_bytes, "input", &n) == STATUS_OK)
        assert(n >= 1 && (size_t)n * CIFAR_RECORD_BYTES == n_bytes);
    else
        assert(status_message()[0] != '\0');
    status_clear();
    return 0;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    for (int i = 0; i < 4; i++)
        seeds[i] = files_cifar(i + 1);
    return 4;
}
