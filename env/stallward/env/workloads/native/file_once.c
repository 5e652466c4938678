/* SPDX-License-Identifier: Apache-2.0
 * A hog of page cache that maps a file, touches its pages once, as many as --program says, and then
 * only waits.
 */
#include "hog.h"

int main(int argc, char **argv)
{
    struct hog h;
    size_t size, file_size;
    volatile uint8_t sink;
    hog_parse(&h, argc, argv);
    const uint8_t *p = hog_map_file(&h, &file_size);
    size = hog_size_mib(&h) * MIB < file_size ? hog_size_mib(&h) * MIB : file_size;
    for (size_t at = 0; at < size; at += MIB) {
        for (size_t i = 0; i < MIB; i += PAGE)
            sink = p[at + i];
        hog_worked(&h, 1);
    }
    (void)sink;
    hog_hold(&h);
}
