/* SPDX-License-Identifier: Apache-2.0
 * An application of sub-tasks that works on data in memory and ends: each sub-task is a thread with
 * an equal part of the pages. It fills its part, then works through it a number of rounds. So the
 * work does not depend on the number of sub-tasks, and the response time is that of the slowest.
 *
 * At the end it writes "start_s end_s", both CLOCK_MONOTONIC.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, WORDS = PAGE / 8, MAX_SUBTASKS = 4096, STACK = 64 << 10 };

static long mib, subtasks = 1, rounds = 1, compute = 1, seed = 1;
enum { SCAN, RANDOM, ZIPF };
static int order = SCAN;
static const char *report_path;

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "subtasks: %s: %s\n", what, detail);
    exit(2);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 31);
}

/* The next page of a part. Ranks of Zipf's law are spread over the part by a step that has no
 * factor in common with the number of pages, so that the most used pages are not neighbours. */
static size_t next_page(uint64_t *state, size_t pages, size_t step, size_t i)
{
    *state += 0x9e3779b97f4a7c15u;
    if (order == SCAN)
        return i;
    uint64_t drawn = mixed(*state);
    if (order == RANDOM)
        return drawn % pages;
    size_t rank = (size_t)exp(log((double)pages) * (double)(drawn >> 11) * 0x1p-53) - 1;
    return rank % pages * step % pages;
}

static size_t step_for(size_t pages)
{
    size_t step = pages * 5 / 8 | 1;
    for (size_t a = pages, b = step; a != 1;) {
        if (!b) {
            a = pages;
            b = step += 2;
        } else {
            size_t rest = a % b;
            a = b;
            b = rest;
        }
    }
    return step;
}

/* Work on one page: every word depends on the one before, so that nothing can be left out. */
static void work(uint64_t *page)
{
    uint64_t carry = page[WORDS - 1];
    for (long pass = 0; pass < compute; pass++)
        for (int i = 0; i < WORDS; i++)
            page[i] = carry = mixed(carry + page[i]);
}

struct part {
    pthread_t thread;
    size_t pages;
    uint64_t seed;
};

static void *run(void *argument)
{
    struct part *part = argument;
    if (!part->pages)
        return NULL;
    uint64_t *data = mmap(NULL, part->pages * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        die("mmap", strerror(errno));
    /* No huge pages: the data must have the size that --mib says. */
    madvise(data, part->pages * PAGE, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < part->pages; i++)
        data[i * WORDS] = part->seed + i;
    size_t step = step_for(part->pages);
    for (long round = 0; round < rounds; round++)
        for (size_t i = 0; i < part->pages; i++)
            work(data + next_page(&part->seed, part->pages, step, i) * WORDS);
    return NULL;
}

static long number(const char *key, const char *value, long low, long high)
{
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (errno || end == value || *end || n < low || n > high) {
        char range[80];
        snprintf(range, sizeof range, "%.30s is not a number from %ld to %ld", value, low, high);
        die(key, range);
    }
    return n;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            die("option without a value", key);
        if (!strcmp(key, "--mib"))
            mib = number(key, value, 1, 1 << 20);
        else if (!strcmp(key, "--subtasks"))
            subtasks = number(key, value, 1, MAX_SUBTASKS);
        else if (!strcmp(key, "--rounds"))
            rounds = number(key, value, 1, 1 << 30);
        else if (!strcmp(key, "--compute"))
            compute = number(key, value, 1, 1 << 30);
        else if (!strcmp(key, "--seed"))
            seed = number(key, value, 0, 1 << 30);
        else if (!strcmp(key, "--order") && !strcmp(value, "scan"))
            order = SCAN;
        else if (!strcmp(key, "--order") && !strcmp(value, "random"))
            order = RANDOM;
        else if (!strcmp(key, "--order") && !strcmp(value, "zipf"))
            order = ZIPF;
        else if (!strcmp(key, "--report"))
            report_path = value;
        else
            die("unknown option or value", key);
    }
    if (!mib || !report_path)
        die("missing option", "--mib and --report are needed");
}

int main(int argc, char **argv)
{
    double start_s = now_s();
    parse(argc, argv);
    /* Opened first: a path that cannot be written is reported before the work, not after it. */
    FILE *report = fopen(report_path, "we");
    if (!report)
        die(report_path, strerror(errno));
    size_t pages = (size_t)mib * (MIB / PAGE);
    struct part *parts = calloc((size_t)subtasks, sizeof *parts);
    if (!parts)
        die("calloc", strerror(errno));
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    for (long i = 0; i < subtasks; i++) {
        parts[i].pages = pages / (size_t)subtasks + (i < (long)(pages % (size_t)subtasks));
        parts[i].seed = mixed((uint64_t)seed * 0x9e3779b97f4a7c15u + (uint64_t)i);
        int error = pthread_create(&parts[i].thread, &small, run, &parts[i]);
        if (error)
            die("pthread_create", strerror(error));
    }
    for (long i = 0; i < subtasks; i++)
        pthread_join(parts[i].thread, NULL);
    if (fprintf(report, "%.6f %.6f\n", start_s, now_s()) < 0 || fclose(report))
        die(report_path, strerror(errno));
    return 0;
}
