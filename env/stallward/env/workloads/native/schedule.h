/* SPDX-License-Identifier: Apache-2.0
 * The arrivals of requests, from a seed: at a constant rate, in repeated steps, or in a wave.
 */
#ifndef STALLWARD_SCHEDULE_H
#define STALLWARD_SCHEDULE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RATES = 32 };

struct schedule {
    double rate[MAX_RATES], seconds[MAX_RATES]; /* the steps; 0 seconds last for ever */
    int steps, fixed;
    double wave_share, wave_period_s; /* a sine, as a share of the rate */
    uint64_t seed;
    double start_s;
};

static inline uint64_t next_random(struct schedule *s)
{
    uint64_t z = (s->seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in (0, 1]. */
static inline double uniform(struct schedule *s)
{
    return ((double)(next_random(s) >> 11) + 1.0) / 9007199254740992.0;
}

/* "RATE" or "RATE:SECONDS,RATE:SECONDS,..."; returns 0 for anything else. Some rates may be 0. */
static inline int parse_rates(struct schedule *s, const char *text)
{
    double most = 0;
    for (s->steps = 0; *text; s->steps++) {
        char *end;
        if (s->steps == MAX_RATES)
            return 0;
        double rate = strtod(text, &end), seconds = 0;
        if (end == text || !(rate >= 0) || rate > 1e6)
            return 0;
        if (*end == ':') {
            text = end + 1;
            seconds = strtod(text, &end);
            if (end == text || !(seconds > 0))
                return 0;
        } else if (s->steps || *end) {
            return 0; /* only a single rate lasts for ever */
        }
        if (*end && (*end != ',' || !end[1]))
            return 0;
        s->rate[s->steps] = rate, s->seconds[s->steps] = seconds;
        most = rate > most ? rate : most;
        text = *end ? end + 1 : end;
    }
    return most > 0;
}

/* "SHARE:PERIOD_S" with a share in 0..1; returns 0 for anything else. */
static inline int parse_wave(struct schedule *s, const char *text)
{
    char *end;
    s->wave_share = strtod(text, &end);
    if (end == text || *end != ':' || !(s->wave_share >= 0 && s->wave_share <= 1))
        return 0;
    s->wave_period_s = strtod(end + 1, &end);
    return !*end && s->wave_period_s > 0;
}

static inline double rate_at(const struct schedule *s, double after_s)
{
    double cycle_s = 0, wave = 1;
    int step = 0;
    for (int i = 0; i < s->steps; i++)
        cycle_s += s->seconds[i];
    if (s->wave_share > 0)
        wave += s->wave_share * sin(2 * M_PI * after_s / s->wave_period_s);
    for (double t = cycle_s > 0 ? fmod(after_s, cycle_s) : 0; step < s->steps - 1; step++)
        if ((t -= s->seconds[step]) < 0)
            break;
    return s->rate[step] * wave;
}

/* The arrival after the one at `last_s`. If the rate varies, arrivals are drawn at the highest rate
 * and each is kept with probability (rate at that time) / (highest rate): thinning, which gives an
 * inhomogeneous Poisson process. */
static inline double next_arrival(struct schedule *s, double last_s)
{
    double most = 0;
    if (s->steps == 1 && s->wave_share == 0)
        return last_s + (s->fixed ? 1 / s->rate[0] : -log(uniform(s)) / s->rate[0]);
    for (int i = 0; i < s->steps; i++)
        most = s->rate[i] > most ? s->rate[i] : most;
    most *= 1 + s->wave_share;
    do
        last_s += -log(uniform(s)) / most;
    while (uniform(s) * most > rate_at(s, last_s - s->start_s));
    return last_s;
}

#endif
