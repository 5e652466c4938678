/* SPDX-License-Identifier: Apache-2.0
 * A hog of dirty page cache: overwrites a file of the size in --program again and again.
 */
#include "hog.h"

int main(int argc, char **argv)
{
    struct hog h;
    static uint8_t buffer[MIB];
    size_t cursor = 0;
    hog_parse(&h, argc, argv);
    if (!h.file_path)
        hog_die("missing option", "--file");
    int fd = open(h.file_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        hog_die(h.file_path, strerror(errno));
    for (uint64_t round = 1;; round++) {
        size_t at = hog_next(&h, &cursor, hog_size_mib(&h) * MIB, MIB);
        for (size_t i = 0; i < MIB; i += PAGE)
            memcpy(buffer + i, &round, sizeof round);
        if (pwrite(fd, buffer, MIB, (off_t)at) != MIB)
            hog_die("write", strerror(errno));
        hog_worked(&h, 1);
    }
}
