/* SPDX-License-Identifier: Apache-2.0
 * The part that all hogs share: arguments, pacing, the program of sizes, the report of work.
 *
 * One unit of work is one MiB touched, read or written. The program of sizes advances with the
 * work done, not with the clock: a hog that was frozen or slowed resumes where it stopped.
 */
#ifndef STALLWARD_HOG_H
#define STALLWARD_HOG_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, MAX_STEPS = 32, REPORT_PERIOD_NS = 100000000 };

struct step {
    size_t size_mib; /* working set while this step lasts */
    double work_mib; /* MiB of work until the next step; 0 = for ever */
};

struct hog {
    const char *report_path; /* lines "monotonic_s cumulative_units" are appended here */
    const char *file_path;   /* data file of the file-backed hogs */
    double rate_mib_s;       /* the highest rate; 0 = as fast as possible */
    size_t block_mib;        /* what is allocated at a time; 0 = everything */
    int random_order;        /* touch chunks in random order instead of scanning */
    uint64_t seed;
    struct step steps[MAX_STEPS];
    int n_steps;
    /* state */
    int step;
    double left_mib, units;
    int report_fd;
    uint64_t next_report_ns, due_ns;
};

static inline void hog_die(const char *what, const char *detail)
{
    fprintf(stderr, "hog: %s: %s\n", what, detail);
    exit(2);
}

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* splitmix64: small, seeded, good enough to choose pages. */
static inline uint64_t hog_random(struct hog *h)
{
    uint64_t z = (h->seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* "SIZE:WORK,SIZE:WORK,..." in MiB; a single "SIZE" lasts for ever. */
static inline void hog_parse_program(struct hog *h, const char *text)
{
    const char *p = text;
    while (*p) {
        char *end;
        if (h->n_steps == MAX_STEPS)
            hog_die("too many steps in --program", text);
        struct step *s = &h->steps[h->n_steps++];
        long size = strtol(p, &end, 10);
        if (end == p || size < 1)
            hog_die("a size in --program is not a number of MiB above 0", text);
        s->size_mib = (size_t)size;
        s->work_mib = 0;
        if (*end == ':') {
            p = end + 1;
            s->work_mib = strtod(p, &end);
            if (end == p || s->work_mib <= 0)
                hog_die("a work in --program is not a number of MiB above 0", text);
        }
        if (*end != ',' && *end != '\0')
            hog_die("--program wants SIZE:WORK,SIZE:WORK,...", text);
        p = *end ? end + 1 : end;
    }
    if (h->n_steps == 0)
        hog_die("--program is empty", "give at least one size in MiB");
}

static inline void hog_parse(struct hog *h, int argc, char **argv)
{
    memset(h, 0, sizeof *h);
    h->report_fd = -1;
    for (int i = 1; i < argc; i += 2) {
        const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            hog_die("option without a value", key);
        if (!strcmp(key, "--program"))
            hog_parse_program(h, value);
        else if (!strcmp(key, "--report"))
            h->report_path = value;
        else if (!strcmp(key, "--file"))
            h->file_path = value;
        else if (!strcmp(key, "--rate"))
            h->rate_mib_s = strtod(value, NULL);
        else if (!strcmp(key, "--block"))
            h->block_mib = (size_t)strtoul(value, NULL, 10);
        else if (!strcmp(key, "--seed"))
            h->seed = strtoull(value, NULL, 10);
        else if (!strcmp(key, "--order"))
            h->random_order = !strcmp(value, "random");
        else
            hog_die("unknown option", key);
    }
    if (!h->n_steps || !h->report_path)
        hog_die("missing option", "--program and --report are needed");
    /* O_NONBLOCK: a FIFO with a slow reader must not stop the work. A lost line does no harm,
     * because the units are cumulative. */
    h->report_fd = open(h->report_path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
    if (h->report_fd < 0)
        hog_die(h->report_path, strerror(errno));
    h->left_mib = h->steps[0].work_mib;
    h->due_ns = now_ns();
}

static inline size_t hog_size_mib(const struct hog *h) { return h->steps[h->step].size_mib; }

static inline void hog_report(struct hog *h, uint64_t now)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%.6f %.2f\n", (double)now / 1e9, h->units);
    ssize_t ignored = write(h->report_fd, line, (size_t)n);
    (void)ignored;
    h->next_report_ns = now + REPORT_PERIOD_NS;
}

/* Count `mib` of finished work, report it if due, and keep the rate. A delay of up to 100 ms is made
 * up for, so that hiccups do not lower the rate. A longer one, from a pause or a stall, is not. */
static inline void hog_worked(struct hog *h, double mib)
{
    uint64_t now = now_ns();
    h->units += mib;
    if (h->steps[h->step].work_mib > 0 && (h->left_mib -= mib) <= 0) {
        h->step = (h->step + 1) % h->n_steps;
        h->left_mib = h->steps[h->step].work_mib;
    }
    if (now >= h->next_report_ns)
        hog_report(h, now);
    if (h->rate_mib_s <= 0)
        return;
    h->due_ns += (uint64_t)(mib / h->rate_mib_s * 1e9);
    if (h->due_ns + REPORT_PERIOD_NS < now)
        h->due_ns = now;
    if (h->due_ns > now) {
        struct timespec t = {(time_t)(h->due_ns / 1000000000u), (long)(h->due_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
}

/* The size of the next block of which `left` MiB are still to be allocated. */
static inline size_t hog_block_mib(const struct hog *h, size_t left)
{
    return h->block_mib > 0 && h->block_mib < left ? h->block_mib : left;
}

/* Keep what there is, and report no further work, for ever. */
static inline void hog_hold(struct hog *h)
{
    for (;;) {
        struct timespec t = {0, REPORT_PERIOD_NS};
        hog_report(h, now_ns());
        nanosleep(&t, NULL);
    }
}

/* The offset of the next chunk of `chunk` bytes in a working set of `size` bytes. */
static inline size_t hog_next(struct hog *h, size_t *cursor, size_t size, size_t chunk)
{
    size_t n = size / chunk;
    size_t i = h->random_order ? (size_t)(hog_random(h) % n) : *cursor % n;
    *cursor = i + 1;
    return i * chunk;
}

static inline const uint8_t *hog_map_file(struct hog *h, size_t *size)
{
    struct stat st;
    if (!h->file_path)
        hog_die("missing option", "--file");
    int fd = open(h->file_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        hog_die(h->file_path, strerror(errno));
    *size = (size_t)st.st_size / MIB * MIB;
    if (*size == 0)
        hog_die(h->file_path, "smaller than 1 MiB");
    uint8_t *p = mmap(NULL, *size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        hog_die("mmap", strerror(errno));
    close(fd);
    return p;
}

#endif
