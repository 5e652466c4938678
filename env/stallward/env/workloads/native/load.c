/* SPDX-License-Identifier: Apache-2.0
 * An open-loop load generator for any server that answers each request with one reply.
 *
 * Requests arrive on a schedule from a seed (schedule.h), whatever the server does. While it stalls,
 * they wait in a queue; the latency of a request counts from its scheduled time. The output is one
 * line per request: "scheduled_s start_s end_s ok" (CLOCK_MONOTONIC). A request without an answer
 * when the program ends is written with ok 0 and the time of the end, a lower bound.
 *
 * Each %K in --request becomes a new random key in 0..KEYS-1; a request may contain several. What
 * else a request may contain is in request.h. A server that wants to be greeted before it answers
 * gets --hello on each new connection. While one connection opens, the others send and receive.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "request.h"
#include "schedule.h"

enum { MAX_CONNECTIONS = 64, TIMER = 1000, SIGNALS = 1001, TAIL = 64, OPEN_S = 5, OUT_BYTES = 1 << 16 };

struct options {
    const char *socket_path, *tcp, *out;
    struct text request, until, ok_prefix, hello, hello_until;
    double seconds, wait_s, skew;
    long connections, keys, request_keys;
};

/* Keys are drawn at the arrival, so that they do not depend on when the request is sent. */
struct pending { double scheduled; long keys[MAX_KEYS]; };

struct connection {
    int fd, greeted, ready, busy;
    double opened, scheduled, start;
    char tail[TAIL + 1], head[TAIL + 1];
    size_t tail_len, head_len;
};

/* How long a server that refuses is left alone before the first request. */
static const double REOPEN_S = 0.02;

static struct schedule plan;
static struct options opt = {.until = {"\n", 1}, .wait_s = 30, .connections = 4, .keys = 1};
static struct connection conns[MAX_CONNECTIONS];
static struct pending *queue;
static size_t q_head, q_len, q_cap;
static int epoll_fd, out_fd;
static char out_buffer[OUT_BYTES];
static size_t out_len;

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "load: %s: %s\n", what, detail);
    exit(2);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void flush(void)
{
    size_t at = 0;
    while (at < out_len) {
        ssize_t n = write(out_fd, out_buffer + at, out_len - at);
        if (n < 0 && errno != EINTR)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    out_len = 0;
}

static void record(double scheduled, double start, double end, int ok)
{
    if (out_len + 128 > OUT_BYTES)
        flush();
    out_len += (size_t)snprintf(out_buffer + out_len, 128, "%.6f %.6f %.6f %d\n", scheduled, start, end, ok);
}

static void push(const struct pending *p)
{
    if (q_len == q_cap) {
        size_t cap = q_cap ? 2 * q_cap : 1024;
        struct pending *bigger = malloc(cap * sizeof *bigger);
        if (!bigger)
            die("malloc", strerror(errno));
        for (size_t i = 0; i < q_len; i++)
            bigger[i] = queue[(q_head + i) % q_cap];
        free(queue);
        queue = bigger, q_cap = cap, q_head = 0;
    }
    queue[(q_head + q_len++) % q_cap] = *p;
}

static struct pending pop(void)
{
    struct pending p = queue[q_head];
    q_head = (q_head + 1) % q_cap, q_len--;
    return p;
}

/* Begins to connect; the connection may only be used when it is writable. */
static int connect_once(void)
{
    int fd, one = 1;
    if (opt.socket_path) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        if (strlen(opt.socket_path) >= sizeof a.sun_path)
            die("--socket path is too long", opt.socket_path);
        strcpy(a.sun_path, opt.socket_path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            return fd;
    } else {
        struct sockaddr_in a = {.sin_family = AF_INET};
        char host[64];
        const char *colon = strrchr(opt.tcp, ':');
        if (!colon || (size_t)(colon - opt.tcp) >= sizeof host)
            die("--tcp wants ADDRESS:PORT", opt.tcp);
        memcpy(host, opt.tcp, (size_t)(colon - opt.tcp));
        host[colon - opt.tcp] = 0;
        a.sin_port = htons((uint16_t)atoi(colon + 1));
        if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
            die("--tcp wants ADDRESS:PORT", opt.tcp);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0)
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            return fd;
    }
    if (fd >= 0 && errno == EINPROGRESS)
        return fd;
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

static int watch(struct connection *c, int operation, uint32_t for_what)
{
    struct epoll_event e = {.events = for_what, .data.u32 = (uint32_t)(c - conns)};
    return epoll_ctl(epoll_fd, operation, c->fd, &e);
}

static int open_connection(struct connection *c)
{
    memset(c, 0, sizeof *c);
    c->opened = now_s();
    c->fd = connect_once();
    return c->fd < 0 ? -1 : watch(c, EPOLL_CTL_ADD, EPOLLOUT);
}

/* Without a connection, the next request fails now instead of waiting. */
static void fail_next(void)
{
    if (q_len) {
        double t = now_s();
        record(pop().scheduled, t, t, 0);
    }
}

static void finish(struct connection *c, int ok)
{
    if (c->busy)
        record(c->scheduled, c->start, now_s(), ok);
    c->busy = 0;
}

static void drop(struct connection *c)
{
    if (c->ready)
        finish(c, 0);
    else
        fail_next();
    close(c->fd);
    c->fd = -1;
}

static int greet(struct connection *c)
{
    static char sent[MAX_REQUEST];
    size_t n = render(&opt.hello, NULL, c - conns, sent);
    int error = 0;
    socklen_t size = sizeof error;
    c->greeted = 1;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
        return -1;
    if (watch(c, EPOLL_CTL_MOD, EPOLLIN) < 0)
        return -1;
    return send(c->fd, sent, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

/* Greets the server, and looks for its answer; the bytes before the answer's end do not matter. */
static void advance(struct connection *c)
{
    size_t want = opt.hello_until.size;
    if (!c->greeted && greet(c) < 0) {
        drop(c);
        return;
    }
    while (c->tail_len < want || memcmp(c->tail, opt.hello_until.bytes, want)) {
        if (c->tail_len == want)
            memmove(c->tail, c->tail + 1, --c->tail_len);
        ssize_t n = recv(c->fd, c->tail + c->tail_len, 1, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != 1) {
            drop(c);
            return;
        }
        c->tail_len++;
    }
    c->ready = 1;
}

static void send_next(struct connection *c)
{
    static char text[MAX_REQUEST];
    struct pending p = pop();
    size_t n = render(&opt.request, p.keys, c - conns, text);
    c->busy = 1, c->scheduled = p.scheduled, c->start = now_s(), c->tail_len = c->head_len = 0;
    if (send(c->fd, text, n, MSG_NOSIGNAL) != (ssize_t)n)
        drop(c);
}

static void receive(struct connection *c)
{
    static char buffer[1 << 16];
    size_t want = opt.until.size;
    for (;;) {
        ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            drop(c);
            return;
        }
        for (size_t i = 0; i < (size_t)n && c->head_len < TAIL; i++)
            c->head[c->head_len++] = buffer[i];
        size_t take = (size_t)n < want ? (size_t)n : want;
        if (c->tail_len + take > want) {
            size_t cut = c->tail_len + take - want;
            memmove(c->tail, c->tail + cut, c->tail_len -= cut);
        }
        memcpy(c->tail + c->tail_len, buffer + n - take, take);
        c->tail_len += take;
        if (c->tail_len == want && !memcmp(c->tail, opt.until.bytes, want)) {
            size_t len = opt.ok_prefix.size;
            finish(c, c->head_len >= len && !memcmp(c->head, opt.ok_prefix.bytes, len));
            return;
        }
    }
}

/* Returns whether the connection can be used; it opens one that is closed. */
static int usable(struct connection *c)
{
    /* A server that is full now (EAGAIN) may accept in a moment. */
    if (c->fd < 0 && open_connection(c) < 0 && errno != EAGAIN)
        fail_next();
    else if (c->fd >= 0 && !c->ready && now_s() > c->opened + OPEN_S)
        drop(c);
    return c->fd >= 0 && c->ready;
}

static void dispatch(void)
{
    for (long i = 0; i < opt.connections && q_len; i++)
        if (usable(&conns[i]) && !conns[i].busy)
            send_next(&conns[i]);
}

static void arm(int fd, double at)
{
    struct itimerspec t = {.it_value = {(time_t)at, (long)((at - floor(at)) * 1e9)}};
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static long next_key(void)
{
    long key = (long)((double)opt.keys * pow(uniform(&plan), opt.skew));
    return key < opt.keys ? key : opt.keys - 1;
}

static void arrive(double scheduled)
{
    struct pending p = {.scheduled = scheduled};
    for (long i = 0; i < opt.request_keys; i++)
        p.keys[i] = next_key();
    push(&p);
}

static struct text unescaped(const char *key, const char *value)
{
    struct text text;
    if (!unescape(value, &text))
        die("\\x wants two hexadecimal digits", key);
    return text;
}

static void parse(int argc, char **argv)
{
    opt.skew = 1;
    for (int i = 1; i < argc; i += 2) {
        const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            die("option without a value", key);
        if (!strcmp(key, "--socket")) opt.socket_path = value;
        else if (!strcmp(key, "--tcp")) opt.tcp = value;
        else if (!strcmp(key, "--request")) opt.request = unescaped(key, value);
        else if (!strcmp(key, "--until")) opt.until = unescaped(key, value);
        else if (!strcmp(key, "--ok-prefix")) opt.ok_prefix = unescaped(key, value);
        else if (!strcmp(key, "--hello")) opt.hello = unescaped(key, value);
        else if (!strcmp(key, "--hello-until")) opt.hello_until = unescaped(key, value);
        else if (!strcmp(key, "--out")) opt.out = value;
        else if (!strcmp(key, "--rate")) {
            if (!parse_rates(&plan, value))
                die("--rate wants RATE or RATE:SECONDS,RATE:SECONDS,...", value);
        } else if (!strcmp(key, "--wave")) {
            if (!parse_wave(&plan, value))
                die("--wave wants SHARE:PERIOD_S with a share of 0 to 1", value);
        } else if (!strcmp(key, "--arrivals")) plan.fixed = !strcmp(value, "fixed");
        else if (!strcmp(key, "--keys")) opt.keys = strtol(value, NULL, 10);
        else if (!strcmp(key, "--skew")) opt.skew = strtod(value, NULL);
        else if (!strcmp(key, "--connections")) opt.connections = strtol(value, NULL, 10);
        else if (!strcmp(key, "--seed")) plan.seed = strtoull(value, NULL, 10);
        else if (!strcmp(key, "--seconds")) opt.seconds = strtod(value, NULL);
        else if (!strcmp(key, "--wait")) opt.wait_s = strtod(value, NULL);
        else die("unknown option", key);
    }
    if ((!opt.socket_path && !opt.tcp) || !opt.request.size || !opt.out || !plan.steps)
        die("missing option", "--socket or --tcp, --request, --out and --rate are needed");
    if (opt.connections < 1 || opt.connections > MAX_CONNECTIONS || opt.keys < 1)
        die("out of range", "--connections 1..64, --keys above 0");
    if (plan.fixed && (plan.steps > 1 || plan.wave_share > 0))
        die("--arrivals fixed wants one rate", "leave out --wave and further rates");
    opt.request_keys = (long)keys_in(&opt.request);
    if (opt.request_keys > MAX_KEYS)
        die("out of range", "--request may hold %K 16 times");
    if (rendered_size(&opt.request) > MAX_REQUEST || rendered_size(&opt.hello) > MAX_REQUEST)
        die("out of range", "--request and --hello take at most 4096 bytes");
    if (!opt.until.size || opt.until.size > TAIL || opt.ok_prefix.size > TAIL || opt.hello_until.size > TAIL)
        die("out of range", "--until, --ok-prefix and --hello-until take at most 64 bytes");
    if (keys_in(&opt.hello) || !opt.hello.size != !opt.hello_until.size)
        die("--hello takes no %K", "and goes together with --hello-until");
}

/* Handles what happens within the time; returns whether a signal asks to end. */
static int handle_events(int timer_fd, int patience_ms)
{
    struct epoll_event events[MAX_CONNECTIONS + 2];
    int n = epoll_wait(epoll_fd, events, MAX_CONNECTIONS + 2, patience_ms), asked = 0;
    for (int i = 0; i < n; i++) {
        uint32_t who = events[i].data.u32;
        if (who == SIGNALS) {
            asked = 1;
        } else if (who == TIMER) {
            uint64_t count;
            ssize_t ignored = read(timer_fd, &count, sizeof count);
            (void)ignored;
        } else if (conns[who].fd >= 0) {
            (conns[who].ready ? receive : advance)(&conns[who]);
        }
    }
    return asked;
}

/* Returns 0 if a signal asks to end before all are connected. */
static int connect_all(int timer_fd)
{
    double give_up = now_s() + opt.wait_s;
    for (long i = 0; i < opt.connections; i++)
        conns[i].fd = -1;
    for (;;) {
        long ready = 0;
        for (long i = 0; i < opt.connections; i++)
            if (conns[i].fd >= 0 || now_s() > conns[i].opened + REOPEN_S)
                ready += usable(&conns[i]);
        if (ready == opt.connections)
            return 1;
        if (now_s() > give_up)
            die("nobody accepts connections", opt.socket_path ? opt.socket_path : opt.tcp);
        if (handle_events(timer_fd, 20))
            return 0;
    }
}

static void run(int timer_fd)
{
    plan.start_s = now_s();
    double due = next_arrival(&plan, plan.start_s), flush_at = 0;
    double stop_at = opt.seconds > 0 ? now_s() + opt.seconds : INFINITY;
    arm(timer_fd, due);
    for (;;) {
        int asked = handle_events(timer_fd, 100);
        double now = now_s();
        /* Requests that came due while this program could not run arrive also at its end. */
        for (; due <= now && due <= stop_at; due = next_arrival(&plan, due))
            arrive(due);
        if (asked || now >= stop_at)
            return;
        arm(timer_fd, due);
        dispatch();
        if (out_len && now >= flush_at) {
            flush();
            flush_at = now + 0.02;
        }
    }
}

int main(int argc, char **argv)
{
    sigset_t signals;
    parse(argc, argv);
    out_fd = open(opt.out, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (out_fd < 0)
        die(opt.out, strerror(errno));
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = TIMER};
    struct epoll_event s = {.events = EPOLLIN, .data.u32 = SIGNALS};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &e);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, signal_fd, &s);
    if (connect_all(timer_fd))
        run(timer_fd);
    double end = now_s();
    for (long i = 0; i < opt.connections; i++)
        if (conns[i].busy)
            record(conns[i].scheduled, conns[i].start, end, 0);
    for (; q_len; q_head = (q_head + 1) % q_cap, q_len--)
        record(queue[q_head].scheduled, end, end, 0);
    flush();
    return 0;
}
