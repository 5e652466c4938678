/* SPDX-License-Identifier: Apache-2.0
 * What an engine gives the server. */
#ifndef STALLWARD_STORE_H
#define STALLWARD_STORE_H

#include <stddef.h>
#include <stdint.h>

enum { ANSWER_BYTES = 256, VALUE_BYTES = 64 };

/* Opens the engine in an empty folder and fills it; workers are the threads that will answer. */
void store_open(const char *folder, long keys, int workers);

/* Answers one request, a line without its end, in a worker: at most ANSWER_BYTES, with their end. */
size_t store_answer(const char *request, char *answer);

/* Ends the program with a message. */
_Noreturn void store_die(const char *what, const char *detail);

/* A number that looks random, from another (splitmix64). */
static inline uint64_t store_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
