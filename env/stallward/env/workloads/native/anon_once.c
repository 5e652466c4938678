/* SPDX-License-Identifier: Apache-2.0
 * A hog of anonymous memory that allocates blocks, touches every page of them once and then holds
 * all of it: the memory consumer of the latd thesis (appendix C), at a size that --program says.
 */
#include "hog.h"

int main(int argc, char **argv)
{
    struct hog h;
    hog_parse(&h, argc, argv);
    for (size_t left = hog_size_mib(&h), block; left > 0; left -= block) {
        block = hog_block_mib(&h, left);
        uint8_t *p = mmap(NULL, block * MIB, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            hog_die("mmap", strerror(errno));
        /* No huge pages: it must hold the memory that --program says. */
        madvise(p, block * MIB, MADV_NOHUGEPAGE);
        for (size_t at = 0; at < block * MIB; at += MIB) {
            for (size_t i = 0; i < MIB; i += PAGE)
                *(volatile uint64_t *)(p + at + i) = 1;
            hog_worked(&h, 1);
        }
    }
    hog_hold(&h);
}
