/* SPDX-License-Identifier: Apache-2.0
 * A hog of page cache that maps a file and touches its pages again and again.
 */
#include "hog.h"

int main(int argc, char **argv)
{
    struct hog h;
    size_t file_size, cursor = 0;
    volatile uint8_t sink;
    hog_parse(&h, argc, argv);
    const uint8_t *p = hog_map_file(&h, &file_size);
    for (;;) {
        size_t size = hog_size_mib(&h) * MIB;
        size_t at = hog_next(&h, &cursor, size < file_size ? size : file_size, MIB);
        for (size_t i = 0; i < MIB; i += PAGE)
            sink = p[at + i];
        (void)sink;
        hog_worked(&h, 1);
    }
}
