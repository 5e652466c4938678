/* SPDX-License-Identifier: Apache-2.0
 * What the load generator sends: texts of the command line with bytes and numbers filled in.
 *
 *   \xNN   the byte NN (hexadecimal), for protocols that are not text
 *   %K     a random key
 *   %0NK   a random key with zeros before it, N digits (1 to 9) wide: requests of one length
 *   %C     the number of the connection, from 0
 */
#ifndef REQUEST_H
#define REQUEST_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 16, MAX_REQUEST = 4096, NUMBER_BYTES = 24 };

struct text { const char *bytes; size_t size; };

static inline int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Replaces each \xNN by its byte; returns 0 if two (lower case) digits do not follow. */
static inline int unescape(const char *from, struct text *to)
{
    char *bytes = malloc(strlen(from) + 1);
    if (!bytes)
        return 0;
    to->bytes = bytes, to->size = 0;
    while (*from) {
        if (from[0] == '\\' && from[1] == 'x') {
            int high = hex_digit(from[2]), low = high < 0 ? -1 : hex_digit(from[3]);
            if (low < 0)
                return 0;
            bytes[to->size++] = (char)(high * 16 + low), from += 4;
        } else {
            bytes[to->size++] = *from++;
        }
    }
    return 1;
}

/* The length of the place for a key at `s`, which is `left` bytes long, and its digits; else 0. */
static inline size_t key_place(const char *s, size_t left, int *digits)
{
    *digits = 1;
    if (left >= 2 && s[0] == '%' && s[1] == 'K')
        return 2;
    if (left >= 4 && s[0] == '%' && s[1] == '0' && s[2] >= '1' && s[2] <= '9' && s[3] == 'K') {
        *digits = s[2] - '0';
        return 4;
    }
    return 0;
}

static inline size_t keys_in(const struct text *t)
{
    size_t count = 0, place;
    int digits;
    for (size_t i = 0; i < t->size; i += place ? place : 1) {
        place = key_place(t->bytes + i, t->size - i, &digits);
        count += place > 0;
    }
    return count;
}

static inline int connection_place(const char *s, size_t left)
{
    return left >= 2 && s[0] == '%' && s[1] == 'C';
}

/* The most bytes that a text takes with its numbers filled in. */
static inline size_t rendered_size(const struct text *t)
{
    size_t places = keys_in(t);
    for (size_t i = 0; i < t->size; i++)
        places += (size_t)connection_place(t->bytes + i, t->size - i);
    return t->size + places * NUMBER_BYTES;
}

/* Fills in the numbers; `to` holds rendered_size bytes. Returns how many bytes there are. */
static inline size_t render(const struct text *t, const long *keys, long connection, char *to)
{
    size_t n = 0, place;
    int digits;
    for (size_t i = 0; i < t->size; i += place) {
        const char *s = t->bytes + i;
        if ((place = key_place(s, t->size - i, &digits)))
            n += (size_t)snprintf(to + n, NUMBER_BYTES, "%0*ld", digits, *keys++);
        else if (connection_place(s, t->size - i))
            n += (size_t)snprintf(to + n, NUMBER_BYTES, "%ld", connection), place = 2;
        else
            to[n++] = *s, place = 1;
    }
    return n;
}

#endif
