/* SPDX-License-Identifier: Apache-2.0
 * A hog of anonymous memory: allocates blocks and touches all of them again and again.
 */
#include "hog.h"

enum { BLOCK_MIB = 16, MAX_BLOCKS = 4096, CHUNK = 1 << 16 };

static uint8_t *blocks[MAX_BLOCKS];
static size_t n_blocks;

static void resize(size_t size_mib)
{
    size_t want = (size_mib + BLOCK_MIB - 1) / BLOCK_MIB;
    if (want > MAX_BLOCKS)
        hog_die("a size in --program is too large", "at most 64 GiB");
    for (; n_blocks > want; n_blocks--)
        munmap(blocks[n_blocks - 1], (size_t)BLOCK_MIB * MIB);
    for (; n_blocks < want; n_blocks++) {
        uint8_t *p = mmap(NULL, (size_t)BLOCK_MIB * MIB, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            hog_die("mmap", strerror(errno));
        /* No huge pages: the working set must have the size that --program says. */
        madvise(p, (size_t)BLOCK_MIB * MIB, MADV_NOHUGEPAGE);
        blocks[n_blocks] = p;
    }
}

int main(int argc, char **argv)
{
    struct hog h;
    size_t cursor = 0;
    hog_parse(&h, argc, argv);
    for (uint64_t round = 1;; round++) {
        resize(hog_size_mib(&h));
        for (int k = 0; k < MIB / CHUNK; k++) {
            size_t at = hog_next(&h, &cursor, hog_size_mib(&h) * MIB, CHUNK);
            uint8_t *p = blocks[at / ((size_t)BLOCK_MIB * MIB)] + at % ((size_t)BLOCK_MIB * MIB);
            for (size_t i = 0; i < CHUNK; i += PAGE)
                *(volatile uint64_t *)(p + i) = round;
        }
        hog_worked(&h, 1);
    }
}
